#include "server/dataset/text_helper.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files/descriptor.h"
#include "base/files/whole_io.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/workers/child_process.h"

namespace roundhouse {
namespace {

using nlohmann::json;

absl::Status ErrnoError(const char* what) { return ShortageOr(what, errno); }

std::vector<std::string> Arguments(const TextHelperOptions& options) {
  std::vector<std::string> arguments = {"--tokenizer",
                                        options.tokenizer_directory, "--model",
                                        options.model_directory};
  if (options.raw) arguments.push_back("--raw");
  if (!options.template_date.empty()) {
    arguments.insert(arguments.end(),
                     {"--template-date", options.template_date});
  }
  return arguments;
}

std::string DrawnLine(const std::vector<DrawnTokens>& drawn) {
  json line = json::array();
  for (const DrawnTokens& one : drawn) {
    line.push_back({one.prompt, one.tokens, one.last});
  }
  return line.dump() + "\n";
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextHelper>> TextHelper::Start(
    EventLoop& loop, const TextHelperOptions& options,
    const std::vector<std::string>& prompts, Tokenized tokenized,
    std::function<void(absl::Status)> ended) {
  Descriptor file(memfd_create("prompts", MFD_CLOEXEC));
  if (file.get() < 0) return ErrnoError("memfd_create");
  if (fchmod(file.get(), 0600) != 0) return ErrnoError("fchmod");
  const std::string asked =
      json(prompts).dump(-1, ' ', false, json::error_handler_t::replace);
  if (!WriteAll(file.get(), asked)) {
    return ErrnoError("writing to the text helper");
  }
  if (lseek(file.get(), 0, SEEK_SET) != 0) return ErrnoError("lseek");
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoError("socketpair");
  }
  Descriptor childs(ends[0]);
  std::unique_ptr<TextHelper> helper(new TextHelper(std::move(tokenized)));
  helper->socket_ = Descriptor(ends[1]);
  HelperCommand command = {.about = options.tokenizer_directory,
                           .arguments = Arguments(options),
                           .given = options.given};
  command.descriptors.push_back(std::move(file));
  command.descriptors.push_back(std::move(childs));
  helper->helper_ = DatasetHelper::Start(
      loop, options.program, std::move(command),
      [self = helper.get()](const std::string& t) { self->OnOutput(t); },
      std::move(ended));
  return helper;
}

TextHelper::~TextHelper() = default;

void TextHelper::Decode(const std::vector<DrawnTokens>& drawn,
                        Decoded decoded) {
  decoded_ = std::move(decoded);
  // It has read all that came before, so there is room; one that has ended or
  // does not read must not stop the loop.
  const std::string line = DrawnLine(drawn);
  const ssize_t sent = send(socket_.get(), line.data(), line.size(),
                            MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(line.size())) return;
  Kill(absl::InternalError(
      absl::StrCat("writing to the text helper: ", std::strerror(errno))));
}

void TextHelper::OnOutput(const std::string& text) {
  rest_ += text;
  size_t end = 0;
  while ((end = rest_.find('\n')) != std::string::npos) {
    const std::string line = rest_.substr(0, end);
    rest_.erase(0, end + 1);
    if (OnLine(line)) continue;
    Kill(absl::InternalError(absl::StrCat(
        "the text helper said what it should not: ", line.substr(0, 200))));
    return;
  }
  if (rest_.size() > kMaxTextHelperBytes) {
    Kill(absl::InternalError("the text helper says too much"));
  }
}

bool TextHelper::OnLine(const std::string& line) {
  try {
    const json answer = json::parse(line);
    if (answer.contains("still")) return true;
    if (tokenized_ != nullptr) {
      TokenizedPrompts found;
      answer.at("prompts").get_to(found.prompts);
      answer.at("end_tokens").get_to(found.end_tokens);
      answer.at("control_tokens").get_to(found.control_tokens);
      std::exchange(tokenized_, nullptr)(std::move(found));
      return true;
    }
    if (decoded_ == nullptr) return false;
    std::exchange(decoded_,
                  nullptr)(answer.at("texts").get<std::vector<std::string>>());
    return true;
  } catch (const json::exception&) {
    return false;
  }
}

}  // namespace roundhouse
