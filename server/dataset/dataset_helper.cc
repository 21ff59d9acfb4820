#include "server/dataset/dataset_helper.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/status.h"
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

// REQUIRES: `wait_status` is no success.
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
    const auto number = json.find("errno");
    if (exit_code != kExitNoOutput || number == json.end() ||
        !number->is_number_integer()) {
      return absl::InternalError(text);
    }
    const int error = number->get<int>();
    return absl::Status(error == EIO ? absl::StatusCode::kUnavailable
                                     : FileError("", "", error).code(),
                        text);
  }
  return absl::InternalError(absl::StrCat(
      "the dataset helper ", DescribeExit(wait_status), ": ", errors));
}

std::vector<std::string> Arguments(const ReadingOptions& options) {
  std::vector<std::string> arguments = {
      "--tokenizer",  options.tokenizer_directory,
      "--data",       options.data_file,
      "--max-length", absl::StrCat(options.max_length),
      "--truncation", options.truncation};
  if (options.packing) {
    arguments.insert(arguments.end(),
                     {"--packing", "--seed", absl::StrCat(options.seed)});
  }
  if (!options.template_date.empty()) {
    arguments.insert(arguments.end(),
                     {"--template-date", options.template_date});
  }
  return arguments;
}

}  // namespace

DatasetHelper::DatasetHelper(EventLoop& loop, const HelperProgram& program,
                             const std::string& about,
                             std::function<void(const std::string&)> output,
                             std::function<void(absl::Status)> ended)
    : loop_(loop),
      silence_limit_(program.silence_limit),
      about_(about),
      output_(std::move(output)),
      ended_(std::move(ended)) {}

absl::StatusOr<std::unique_ptr<DatasetHelper>> DatasetHelper::Start(
    EventLoop& loop, const HelperProgram& program,
    const ReadingOptions& options, const std::vector<std::string>& mode,
    std::function<void(const std::string&)> output,
    std::function<void(absl::Status)> ended) {
  std::vector<std::string> arguments = Arguments(options);
  arguments.insert(arguments.end(), mode.begin(), mode.end());
  return Start(loop, program, options.data_file, arguments, {},
               std::move(output), std::move(ended));
}

absl::StatusOr<std::unique_ptr<DatasetHelper>> DatasetHelper::Start(
    EventLoop& loop, const HelperProgram& program, const std::string& about,
    const std::vector<std::string>& arguments,
    const std::vector<int>& descriptors,
    std::function<void(const std::string&)> output,
    std::function<void(absl::Status)> ended) {
  std::unique_ptr<DatasetHelper> helper(new DatasetHelper(
      loop, program, about, std::move(output), std::move(ended)));
  ChildOptions child;
  child.program = program.python;
  child.arguments = {program.script};
  child.arguments.insert(child.arguments.end(), arguments.begin(),
                         arguments.end());
  child.descriptors = descriptors;
  child.environment = {"LANG=C.UTF-8", "PATH=/usr/bin:/bin",
                       "TOKENIZERS_PARALLELISM=false",
                       "PYTHONDONTWRITEBYTECODE=1"};
  if (!ArmedFileFaults().empty()) {
    child.environment.push_back(
        absl::StrCat("ROUNDHOUSE_FILE_FAULT_AT=", ArmedFileFaults()));
  }
  child.capture_stdout = true;
  DatasetHelper* const self = helper.get();
  ASSIGN_OR_RETURN(
      helper->child_,
      ChildProcess::Start(
          loop, child, [self](int status) { self->OnExit(status); },
          [self](const std::string& text) { self->OnOutput(text); }));
  helper->WaitAnew();
  return helper;
}

DatasetHelper::~DatasetHelper() { loop_.CancelTimer(watchdog_); }

void DatasetHelper::Kill(absl::Status why) {
  if (killed_.ok()) killed_ = std::move(why);
  child_->Kill(SIGKILL);
}

void DatasetHelper::WaitAnew() {
  loop_.CancelTimer(watchdog_);
  watchdog_ = loop_.After(silence_limit_, [this] {
    Kill(absl::DeadlineExceededError(
        absl::StrCat(about_, ": the dataset helper told no progress for ",
                     absl::FormatDuration(silence_limit_), " and was killed")));
  });
}

void DatasetHelper::OnOutput(const std::string& text) {
  if (!killed_.ok()) return;
  WaitAnew();
  output_(text);
}

void DatasetHelper::OnExit(int wait_status) {
  loop_.CancelTimer(watchdog_);
  absl::Status status = killed_;
  if (status.ok() && wait_status != 0) {
    status = HelperError(wait_status, child_->stderr_tail());
  }
  const auto ended = ended_;  // outlives this object
  ended(std::move(status));
}

}  // namespace roundhouse
