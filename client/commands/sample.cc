#include "client/commands/sample.h"

#include <cstdint>
#include <ostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/visible_text.h"
#include "client/error_text.h"
#include "client/files.h"
#include "client/tables/message_json.h"
#include "client/tables/sample_output.h"

namespace roundhouse::client {
namespace {

// The server's limits.
constexpr int64_t kMaxNewTokens = 1024;
constexpr size_t kMaxPromptsFileBytes = 2 << 20;

class SampleCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  absl::Status ReadPrompts();
  v1::SampleRequest Request(const std::string& model) const;
  void OnMessage(const v1::SampleResponse& message, Session* session);
  void ShowFinished(Session* session);
  void ShowAll(Session* session) const;

  std::vector<std::string> prompts_;
  std::string prompts_file_;
  std::string temperature_text_ = "0";
  double temperature_ = 0;
  int64_t max_new_tokens_ = 128;
  int64_t seed_ = 0;
  bool raw_ = false;

  std::string source_;
  std::vector<Completion> completions_;
  size_t shown_ = 0;  // in the order of prompts
};

const CommandInfo& SampleCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "sample",
      "JOB|DIRECTORY",
      "completions by a job's weights",
      "Of a job: its output, before that its last checkpoint.  A directory "
      "(under the\nserver's data roots) is a checkpoint, a model or an "
      "adapter.\n\nEach prompt is shown with its completion in green, or "
      "between [[ and ]] without\ncolours.  It runs beside training jobs, "
      "which go first.",
      1,
      1};
  return info;
}

void SampleCommand::DefineFlags(FlagSet* flags) {
  flags->AddStrings("prompt", 'p', "TEXT", &prompts_,
                    "a text to complete; may be given again");
  flags->AddString("prompts-file", 0, "FILE", &prompts_file_,
                   "texts to complete: JSON Lines of strings or {\"prompt\": "
                   "...}; - is standard input");
  flags->AddInt("max-new-tokens", 0, "N", 1, &max_new_tokens_,
                "the most tokens of each completion; 128 when not given");
  flags->AddString("temperature", 0, "T", &temperature_text_,
                   "how freely tokens are drawn; 0, the default, takes the "
                   "likeliest");
  flags->AddInt("seed", 0, "S", 0, &seed_, "the seed of the draws");
  flags->AddBool("raw", 0, &raw_,
                 "take prompts as they are, without the chat template");
}

absl::Status SampleCommand::CheckFlags() {
  if (prompts_.empty() && prompts_file_.empty()) {
    return absl::InvalidArgumentError("flag --prompt is missing");
  }
  if (max_new_tokens_ > kMaxNewTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --max-new-tokens: ", max_new_tokens_,
                     " is more than ", kMaxNewTokens));
  }
  if (absl::SimpleAtod(temperature_text_, &temperature_) && temperature_ >= 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("flag --temperature: \"", temperature_text_,
                   "\" is not a number from 0 on"));
}

absl::Status SampleCommand::ReadPrompts() {
  if (prompts_file_.empty()) return absl::OkStatus();
  const auto text = ReadSmallFile(prompts_file_, kMaxPromptsFileBytes);
  if (!text.ok()) return text.status();
  const auto read = ParsePrompts(*text, prompts_file_);
  if (!read.ok()) return read.status();
  prompts_.insert(prompts_.end(), read->begin(), read->end());
  if (!prompts_.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(prompts_file_, ": has no prompt"));
}

v1::SampleRequest SampleCommand::Request(const std::string& model) const {
  v1::SampleRequest request;
  request.set_model(model);
  for (const std::string& prompt : prompts_) request.add_prompts(prompt);
  request.set_max_new_tokens(static_cast<int32_t>(max_new_tokens_));
  request.set_temperature(temperature_);
  request.set_seed(static_cast<uint64_t>(seed_));
  request.set_raw(raw_);
  return request;
}

void SampleCommand::ShowFinished(Session* session) {
  const Environment& environment = session->environment();
  const bool color = environment.out_is_terminal && environment.ColorsAllowed();
  while (shown_ < completions_.size() &&
         completions_[shown_].end != v1::SAMPLE_END_UNSPECIFIED) {
    session->out() << CompletionText(completions_[shown_++], color);
  }
  session->out() << std::flush;
}

void SampleCommand::ShowAll(Session* session) const {
  nlohmann::ordered_json json;
  json["source"] = source_;
  json["samples"] = nlohmann::ordered_json::array();
  for (const Completion& completion : completions_) {
    json["samples"].push_back(CompletionJson(completion));
  }
  session->out() << JsonText(json, 2) << "\n";
}

void SampleCommand::OnMessage(const v1::SampleResponse& message,
                              Session* session) {
  if (!message.source().empty()) {
    source_ = message.source();
    session->err() << "sampling from " << VisibleLine(source_) << "\n";
    return;
  }
  if (AddPiece(message, &completions_) &&
      session->format() == OutputFormat::kTable) {
    ShowFinished(session);
  }
}

ExitCode SampleCommand::Run(const std::vector<std::string>& arguments,
                            Session* session) {
  const std::string& model = arguments[0];
  const absl::Status read = ReadPrompts();
  if (!read.ok()) {
    session->err() << "roundhouse: sample: "
                   << MessageText(std::string(read.message())) << "\n";
    return ExitCode::kError;
  }
  for (const std::string& prompt : prompts_) completions_.push_back({prompt});
  // As long as the devices take.
  UnaryContext context(session->interrupt(), absl::InfiniteDuration());
  const auto reader = session->models().Sample(context.get(), Request(model));
  v1::SampleResponse message;
  while (reader->Read(&message)) OnMessage(message, session);
  const grpc::Status status = reader->Finish();
  if (!status.ok()) return session->Fail("sample " + model, status);
  if (session->format() == OutputFormat::kJson) ShowAll(session);
  if (session->format() == OutputFormat::kName) {
    session->out() << VisibleLine(source_) << "\n";
  }
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeSampleCommand() {
  return std::make_unique<SampleCommand>();
}

}  // namespace roundhouse::client
