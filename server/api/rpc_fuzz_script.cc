#include "server/api/rpc_fuzz_script.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"

namespace roundhouse {
namespace {

class Silent final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber,
                const std::string&) override {}
};

std::string Request(const RpcMethod& method, const std::string& text) {
  const std::unique_ptr<google::protobuf::Message> request(
      google::protobuf::MessageFactory::generated_factory()
          ->GetPrototype(method.input_type())
          ->New());
  Silent silent;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&silent);
  parser.AllowPartialMessage(true);
  parser.ParseFromString(text, request.get());
  return request->SerializePartialAsString();
}

}  // namespace

std::vector<ScriptedCall> ParseRpcScript(
    absl::string_view script, const std::vector<const RpcMethod*>& methods) {
  std::vector<ScriptedCall> calls;
  for (absl::string_view line : absl::StrSplit(script, '\n')) {
    if (calls.size() == kMostScriptCalls) break;
    if (!absl::ConsumePrefix(&line, "#")) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    const auto method =
        std::find_if(methods.begin(), methods.end(),
                     [&](const auto* m) { return m->name() == words[0]; });
    if (method == methods.end()) continue;
    calls.push_back(
        {*method, Request(**method, words.size() > 1 ? words[1] : "")});
  }
  return calls;
}

}  // namespace roundhouse
