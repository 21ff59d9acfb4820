#include "server/jobs/preparer.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

constexpr int kExitBadData = 3;
constexpr int kExitNoOutput = 4;

// "" when there is no such text.
std::string Text(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>()
                                                     : std::string();
}

}  // namespace

std::vector<std::string> HelperEnvironment() {
  return {"LANG=C.UTF-8", "PATH=/usr/bin:/bin", "TOKENIZERS_PARALLELISM=false",
          "PYTHONDONTWRITEBYTECODE=1"};
}

absl::Status HelperError(int wait_status, const std::string& errors) {
  const int exit_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
  for (const absl::string_view line :
       absl::StrSplit(errors, '\n', absl::SkipEmpty())) {
    const auto json = nlohmann::json::parse(std::string(line), nullptr, false);
    if (!json.is_object() || Text(json, "error").empty()) continue;
    std::string where = Text(json, "file");
    if (json.contains("line")) {
      absl::StrAppend(&where, ":", json["line"].dump());
    }
    if (!where.empty()) where += ": ";
    const std::string text = where + Text(json, "error");
    if (exit_code == kExitBadData) return absl::InvalidArgumentError(text);
    const bool full = json.contains("errno") && json["errno"] == ENOSPC;
    if (exit_code == kExitNoOutput && full) {
      return absl::ResourceExhaustedError(text);
    }
    return absl::InternalError(text);
  }
  return absl::InternalError(absl::StrCat(
      "the dataset helper ", DescribeExit(wait_status), ": ", errors));
}

Preparer::Preparer(EventLoop& loop, const PreparerOptions& options,
                   std::function<void(absl::Status)> done)
    : loop_(loop), options_(options), done_(std::move(done)) {}

std::unique_ptr<Preparer> Preparer::Start(
    EventLoop& loop, const PreparerOptions& options,
    std::function<void(absl::Status)> done) {
  auto preparer =
      std::unique_ptr<Preparer>(new Preparer(loop, options, std::move(done)));
  preparer->StartSplit(false);
  return preparer;
}

Preparer::~Preparer() {
  loop_.CancelTimer(next_);
  loop_.CancelTimer(watchdog_);
}

void Preparer::StartSplit(bool validation) {
  const std::string train = options_.output_directory + "/train";
  const std::string out =
      validation ? options_.output_directory + "/validation" : train;
  std::error_code error;
  std::filesystem::create_directories(out, error);
  data_ = validation ? options_.validation_file : options_.train_file;
  ChildOptions child;
  child.program = options_.python;
  child.arguments = {options_.script,
                     "--tokenizer",
                     options_.tokenizer_directory,
                     "--data",
                     data_,
                     "--out",
                     out,
                     "--max-length",
                     absl::StrCat(options_.max_length),
                     "--truncation",
                     options_.truncation,
                     "--split",
                     validation ? "validation" : "train"};
  if (options_.packing) {
    child.arguments.insert(
        child.arguments.end(),
        {"--packing", "--seed", absl::StrCat(options_.seed)});
  }
  if (!options_.template_date.empty()) {
    child.arguments.insert(child.arguments.end(),
                           {"--template-date", options_.template_date});
  }
  if (!options_.cache_directory.empty()) {
    child.arguments.insert(child.arguments.end(),
                           {"--cache", options_.cache_directory});
  }
  if (validation) {
    child.arguments.push_back("--bigram-from");
    child.arguments.push_back(train);
  }
  child.environment = HelperEnvironment();
  child.capture_stdout = true;
  auto started = ChildProcess::Start(
      loop_, child,
      [this, validation](int status) { OnExit(validation, status); },
      [this](const std::string&) { OnProgress(); });
  if (started.ok()) {
    child_ = *std::move(started);
    OnProgress();
    return;
  }
  const absl::Status status = started.status();
  next_ = loop_.After(absl::ZeroDuration(), [this, status] { Finish(status); });
}

void Preparer::OnProgress() {
  loop_.CancelTimer(watchdog_);
  watchdog_ = loop_.After(options_.silence_limit, [this] { OnSilence(); });
}

// Its end is waited for without blocking: a child that hangs in the kernel dies
// only when the file system answers.
void Preparer::OnSilence() {
  silent_ = true;
  child_->Kill(SIGKILL);
}

absl::Status Preparer::SilenceError() const {
  return absl::DeadlineExceededError(absl::StrCat(
      data_, ": the dataset helper told no progress for ",
      absl::FormatDuration(options_.silence_limit), " and was killed"));
}

void Preparer::OnExit(bool validation, int wait_status) {
  loop_.CancelTimer(watchdog_);
  if (silent_) {
    Finish(SilenceError());
  } else if (wait_status != 0) {
    Finish(HelperError(wait_status, child_->stderr_tail()));
  } else if (!validation && !options_.validation_file.empty()) {
    // Not from within the old child's own callback.
    next_ = loop_.After(absl::ZeroDuration(), [this] { StartSplit(true); });
  } else {
    Finish(absl::OkStatus());
  }
}

void Preparer::Finish(absl::Status status) {
  const auto done = std::move(done_);
  done(std::move(status));  // may destroy this object
}

}  // namespace roundhouse
