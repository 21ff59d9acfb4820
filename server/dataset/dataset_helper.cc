#include "server/dataset/dataset_helper.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
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
// Lines that say where the helper is are no longer; others may be.
constexpr size_t kMaxPlaceBytes = 5 << 10;

// "" when there is no such text.
std::string Text(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>()
                                                     : std::string();
}

// 0 where it is no number.
double Number(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

// How one ended that a signal killed; `place` is where it was.
absl::Status Died(int signal, const std::string& place,
                  const std::string& errors) {
  if (signal == SIGXCPU) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, " takes more CPU time than it may"));
  }
  // The tokenizer, and C++ within pyarrow, can't give up in any other way.
  const bool memory = absl::StrContains(errors, "memory allocation of") ||
                      absl::StrContains(errors, "bad_alloc");
  if (signal == SIGABRT && memory) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, " needs more memory than the ",
                     kHelperMemoryBytes >> 20, " MiB that reading may take"));
  }
  if (signal == SIGKILL) {
    return absl::InternalError(absl::StrCat(
        place,
        ": the dataset helper was killed by signal 9, which the kernel "
        "sends where memory has run out; try again"));
  }
  return absl::InternalError(
      absl::StrCat(place, ": the dataset helper was killed by signal ", signal,
                   ": ", errors));
}

// How one ended that exited, not with success.
absl::Status HelperError(int wait_status, const std::string& errors) {
  const int exit_code = WEXITSTATUS(wait_status);
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
    return absl::Status(error == EIO ? absl::StatusCode::kDataLoss
                                     : FileError("", "", error).code(),
                        text);
  }
  return absl::InternalError(absl::StrCat(
      "the dataset helper ", DescribeExit(wait_status), ": ", errors));
}

// As server/prepare/common/limits.py reads it.
std::string Limits() {
  const nlohmann::json limits = {{"parent", getpid()},
                                 {"memory_bytes", kHelperMemoryBytes},
                                 {"counting_bytes", kHelperCountingBytes},
                                 {"cpu_seconds", kHelperCpuSeconds},
                                 {"file_bytes", kHelperFileBytes}};
  return absl::StrCat("ROUNDHOUSE_HELPER=", limits.dump());
}

std::vector<std::string> Arguments(const ReadingOptions& options) {
  std::vector<std::string> arguments = {
      "--tokenizer",  options.tokenizer_directory,
      "--max-length", absl::StrCat(options.max_length),
      "--truncation", options.truncation};
  const auto add = [&arguments](const char* name, const std::string& value) {
    arguments.insert(arguments.end(), {name, value});
  };
  for (const std::string& file : options.data_files) add("--data", file);
  if (!options.format.empty()) add("--format", options.format);
  if (!options.columns.empty()) add("--columns", options.columns);
  if (options.max_samples > 0) {
    add("--max-samples", absl::StrCat(options.max_samples));
  }
  if (options.validation_split > 0) {
    add("--validation-split", absl::StrCat(options.validation_split));
  }
  if (options.packing) arguments.push_back("--packing");
  if (options.packing || options.validation_split > 0) {
    add("--seed", absl::StrCat(options.seed));
  }
  if (!options.template_date.empty()) {
    add("--template-date", options.template_date);
  }
  return arguments;
}

}  // namespace

// What the child may read, found and opened.
struct DatasetHelper::Opened {
  std::vector<GivenFile> given;
  std::vector<Descriptor> descriptors;
};

DatasetHelper::DatasetHelper(EventLoop& loop, const HelperProgram& program,
                             HelperCommand command,
                             std::function<void(const std::string&)> output,
                             std::function<void(absl::Status)> ended)
    : loop_(loop),
      program_(program),
      command_(std::move(command)),
      output_(std::move(output)),
      ended_(std::move(ended)),
      background_(loop) {}

std::unique_ptr<DatasetHelper> DatasetHelper::Start(
    EventLoop& loop, const HelperProgram& program,
    const ReadingOptions& options, const std::vector<std::string>& mode,
    std::function<void(const std::string&)> output,
    std::function<void(absl::Status)> ended) {
  HelperCommand command;
  command.about = options.data_files.empty() ? "" : options.data_files[0];
  command.arguments = Arguments(options);
  command.arguments.insert(command.arguments.end(), mode.begin(), mode.end());
  command.arguments.insert(command.arguments.end(),
                           {"--processes", absl::StrCat(program.processes)});
  command.given = options.given;
  return Start(loop, program, std::move(command), std::move(output),
               std::move(ended));
}

std::unique_ptr<DatasetHelper> DatasetHelper::Start(
    EventLoop& loop, const HelperProgram& program, HelperCommand command,
    std::function<void(const std::string&)> output,
    std::function<void(absl::Status)> ended) {
  std::unique_ptr<DatasetHelper> helper(new DatasetHelper(
      loop, program, std::move(command), std::move(output), std::move(ended)));
  DatasetHelper* const self = helper.get();
  self->background_.Run<absl::StatusOr<Opened>>(
      [given = self->command_.given]() -> absl::StatusOr<Opened> {
        Opened opened;
        if (!given) return opened;
        ASSIGN_OR_RETURN(opened.given, given());
        RETURN_IF_ERROR(CheckGiven(opened.given));
        ASSIGN_OR_RETURN(opened.descriptors, OpenGiven(opened.given));
        return opened;
      },
      [self](absl::StatusOr<Opened> opened) {
        self->OnOpened(std::move(opened));
      });
  return helper;
}

void DatasetHelper::OnOpened(absl::StatusOr<Opened> opened) {
  absl::Status status = killed_.ok() ? opened.status() : killed_;
  if (status.ok()) {
    opened_ = std::make_shared<const Opened>(*std::move(opened));
    status = StartChild();
  }
  if (!status.ok()) End(status);
}

void DatasetHelper::End(const absl::Status& status) {
  const auto ended = ended_;  // outlives this object
  ended(killed_.ok() ? status : killed_);
}

absl::Status DatasetHelper::StartChild() {
  const Opened& opened = *opened_;
  ChildOptions child;
  child.program = program_.python;
  child.arguments = {program_.script};
  child.arguments.insert(child.arguments.end(), command_.arguments.begin(),
                         command_.arguments.end());
  for (const Descriptor& file : command_.descriptors) {
    child.descriptors.push_back(file.get());
  }
  for (const Descriptor& file : opened.descriptors) {
    child.descriptors.push_back(file.get());
  }
  child.environment = {"LANG=C.UTF-8", "PATH=/usr/bin:/bin",
                       "TOKENIZERS_PARALLELISM=false",
                       "PYTHONDONTWRITEBYTECODE=1",
                       // mimalloc reserves address space, which is limited.
                       "ARROW_DEFAULT_MEMORY_POOL=system", Limits()};
  if (!opened.given.empty()) {
    child.environment.push_back(GivenVariable(
        opened.given,
        kFirstChildFd + static_cast<int>(command_.descriptors.size())));
  }
  if (!ArmedFileFaults().empty()) {
    child.environment.push_back(
        absl::StrCat("ROUNDHOUSE_FILE_FAULT_AT=", ArmedFileFaults()));
  }
  child.capture_stdout = true;
  child.ends_group = true;
  ASSIGN_OR_RETURN(child_,
                   program_.start(
                       loop_, child, [this](int status) { OnExit(status); },
                       [this](const std::string& text) { OnOutput(text); }));
  started_ = true;
  command_.descriptors.clear();
  WaitAnew(std::min(program_.start_limit, program_.silence_limit));
  KillAfterTotal(program_.total_limit);
  return absl::OkStatus();
}

DatasetHelper::~DatasetHelper() {
  loop_.CancelTimer(watchdog_);
  loop_.CancelTimer(total_);
}

void DatasetHelper::Kill(absl::Status why) {
  if (killed_.ok()) killed_ = std::move(why);
  if (child_ != nullptr) child_->Kill(SIGKILL);
}

void DatasetHelper::WaitAnew(absl::Duration limit) {
  loop_.CancelTimer(watchdog_);
  watchdog_ = loop_.After(limit, [this, limit] {
    Kill(absl::DeadlineExceededError(absl::StrCat(
        command_.about, ": the dataset helper told no progress for ",
        absl::FormatDuration(limit), " and was killed")));
  });
}

void DatasetHelper::KillAfterTotal(absl::Duration limit) {
  if (limit == absl::InfiniteDuration()) return;
  total_ = loop_.After(limit, [this, limit] {
    Kill(absl::DeadlineExceededError(
        absl::StrCat(command_.about, ": reading it took longer than ",
                     absl::FormatDuration(limit), " and was ended")));
  });
}

void DatasetHelper::TakeLines(const std::string& text) {
  for (const char c : text) {
    if (c != '\n') {
      if (line_.size() < kMaxPlaceBytes) line_ += c;
      continue;
    }
    TakeLine(std::exchange(line_, ""));
  }
}

// Keeps what the last {"at", "line", "file"?} said, passes on {"progress",
// "total"}.
void DatasetHelper::TakeLine(const std::string& line) {
  const bool at = absl::StartsWith(line, "{\"at\"");
  if (!at && !absl::StartsWith(line, "{\"progress\"")) return;
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return;
  if (at && json.contains("line")) {
    const std::string file = Text(json, "file");
    place_ = absl::StrCat(file.empty() ? command_.about : file, ":",
                          json["line"].dump(), ": ", Text(json, "at"));
  }
  const double total = Number(json, "total");
  if (total > 0) {
    progress_(std::clamp(Number(json, "progress") / total, 0.0, 1.0));
  }
}

void DatasetHelper::OnOutput(const std::string& text) {
  if (!killed_.ok()) return;
  heard_ = true;
  WaitAnew(program_.silence_limit);
  TakeLines(text);
  output_(text);
}

absl::Status DatasetHelper::Failure(int wait_status) const {
  const std::string& errors = child_->stderr_tail();
  if (!WIFSIGNALED(wait_status)) return HelperError(wait_status, errors);
  const std::string place =
      !place_.empty()
          ? place_
          : absl::StrCat(command_.about,
                         heard_ ? ": reading it" : ": reading the tokenizer");
  return Died(WTERMSIG(wait_status), place, errors);
}

void DatasetHelper::OnExit(int wait_status) {
  loop_.CancelTimer(watchdog_);
  loop_.CancelTimer(total_);
  absl::Status status = killed_;
  killed_by_others_ = status.ok() && WIFSIGNALED(wait_status) &&
                      WTERMSIG(wait_status) == SIGKILL;
  if (status.ok() && wait_status != 0) status = Failure(wait_status);
  if (!status.ok()) return End(status);
  background_.Run<absl::Status>(
      [opened = opened_] {
        return CheckUnchanged(opened->given, opened->descriptors);
      },
      [this](const absl::Status& unchanged) { End(unchanged); });
}

}  // namespace roundhouse
