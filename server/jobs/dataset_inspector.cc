#include "server/jobs/dataset_inspector.h"

#include <signal.h>

#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "server/jobs/preparer.h"
#include "server/jobs/spec_error.h"
#include "server/pool/child_process.h"

namespace roundhouse {
namespace {

// The helper's own bounds.
constexpr int64_t kFewestTokens = 2;
constexpr int64_t kMostTokens = (int64_t{1} << 31) - 1;

absl::Status Invalid(const std::string& field, const std::string& text) {
  return FieldError("INVALID_VALUE", field, absl::StrCat(field, ": ", text));
}

absl::Status CheckGiven(const DatasetQuestion& question) {
  const std::pair<const char*, const std::string*> needed[] = {
      {"dataset", &question.dataset},
      {"model_name_or_path", &question.model_name_or_path}};
  for (const auto& [field, value] : needed) {
    if (!value->empty()) continue;
    return FieldError("MISSING_FIELD", field,
                      absl::StrCat(field, ": is missing"));
  }
  return absl::OkStatus();
}

absl::Status CheckNumbers(const DatasetQuestion& question) {
  if (question.max_length < kFewestTokens ||
      question.max_length > kMostTokens) {
    return Invalid("max_length",
                   absl::StrCat(question.max_length, " tokens; from ",
                                kFewestTokens, " to ", kMostTokens));
  }
  if (question.samples < 0 || question.samples > kMaxPreviewSamples) {
    return Invalid("samples", absl::StrCat(question.samples, "; from 1 to ",
                                           kMaxPreviewSamples));
  }
  if (question.seed < 0) return Invalid("seed", "must not be negative");
  return absl::OkStatus();
}

absl::Status CheckWords(const DatasetQuestion& question) {
  static const auto& truncations =
      *new std::set<std::string>{"right", "left", "drop"};
  if (!truncations.contains(question.truncation)) {
    return Invalid("truncation", absl::StrCat("\"", question.truncation,
                                              "\" is none of right, left, "
                                              "drop"));
  }
  absl::CivilDay day;
  if (!absl::ParseCivilTime(question.template_date, &day) ||
      absl::FormatCivilTime(day) != question.template_date) {
    return Invalid("template_date", absl::StrCat("\"", question.template_date,
                                                 "\" is not YYYY-MM-DD"));
  }
  return absl::OkStatus();
}

absl::Status CheckTokenizer(const std::string& model) {
  const std::string path = model + "/tokenizer.json";
  if (std::filesystem::exists(path)) return absl::OkStatus();
  return FieldError(
      "INVALID_MODEL", "model_name_or_path",
      absl::StrCat("model_name_or_path: ", path, ": no such file"));
}

std::vector<std::string> Arguments(const std::string& script,
                                   const DatasetQuestion& question) {
  std::vector<std::string> arguments = {script,
                                        "--tokenizer",
                                        question.model_name_or_path,
                                        "--data",
                                        question.dataset,
                                        "--max-length",
                                        absl::StrCat(question.max_length),
                                        "--truncation",
                                        question.truncation,
                                        "--template-date",
                                        question.template_date};
  if (question.packing) {
    arguments.insert(arguments.end(),
                     {"--packing", "--seed", absl::StrCat(question.seed)});
  }
  if (question.samples == 0) {
    arguments.push_back("--validate");
  } else {
    arguments.insert(arguments.end(),
                     {"--preview", absl::StrCat(question.samples)});
  }
  return arguments;
}

}  // namespace

// One child.  Loop thread.
class DatasetInspector::Inspection {
 public:
  // `ended` may destroy this object.
  Inspection(EventLoop& loop, absl::Duration silence_limit, Done done,
             std::function<void(absl::StatusOr<std::string>)> ended)
      : loop_(loop),
        silence_limit_(silence_limit),
        done_(std::move(done)),
        ended_(std::move(ended)) {}
  ~Inspection() { loop_.CancelTimer(watchdog_); }

  absl::Status Start(const ChildOptions& options) {
    ASSIGN_OR_RETURN(child_,
                     ChildProcess::Start(
                         loop_, options, [this](int status) { OnExit(status); },
                         [this](const std::string& text) { OnOutput(text); }));
    WaitAnew();
    return absl::OkStatus();
  }

  // Its end is waited for: a child that hangs in the kernel still counts.
  void Kill(absl::Status why) {
    if (killed_.ok()) killed_ = std::move(why);
    child_->Kill(SIGKILL);
  }

  const Done& done() const { return done_; }

 private:
  void WaitAnew() {
    loop_.CancelTimer(watchdog_);
    watchdog_ = loop_.After(silence_limit_, [this] {
      Kill(absl::DeadlineExceededError(absl::StrCat(
          "the dataset helper told no progress for ",
          absl::FormatDuration(silence_limit_), " and was killed")));
    });
  }

  // Keeps the last whole line; what comes before it is progress.
  void OnOutput(const std::string& text) {
    if (!killed_.ok()) return;
    WaitAnew();
    for (const char c : text) {
      if (c == '\n') {
        last_line_ = std::exchange(line_, "");
      } else {
        line_ += c;
      }
    }
    if (line_.size() > kMaxInspectionBytes) {
      line_.clear();
      Kill(FieldError(absl::StatusCode::kResourceExhausted, "QUOTA", "samples",
                      absl::StrCat("samples: the answer has more than ",
                                   kMaxInspectionBytes,
                                   " bytes; ask for fewer samples or a "
                                   "smaller max_length")));
    }
  }

  void OnExit(int wait_status) {
    loop_.CancelTimer(watchdog_);
    absl::StatusOr<std::string> answer = std::move(last_line_);
    if (!killed_.ok()) {
      answer = killed_;
    } else if (wait_status != 0) {
      answer = Explained(HelperError(wait_status, child_->stderr_tail()));
    }
    const auto ended = ended_;  // outlives this object
    ended(std::move(answer));
  }

  static absl::Status Explained(const absl::Status& status) {
    if (!absl::IsInvalidArgument(status)) return status;
    return FieldError("INVALID_DATASET", "", std::string(status.message()));
  }

  EventLoop& loop_;
  const absl::Duration silence_limit_;
  const Done done_;
  const std::function<void(absl::StatusOr<std::string>)> ended_;
  std::unique_ptr<ChildProcess> child_;
  EventLoop::TimerId watchdog_ = 0;
  absl::Status killed_;  // not OK: why
  std::string line_;     // being received
  std::string last_line_;
};

DatasetInspector::DatasetInspector(EventLoop& loop,
                                   const InspectorOptions& options,
                                   PathResolver resolve)
    : loop_(loop), options_(options), resolve_(std::move(resolve)) {}

DatasetInspector::~DatasetInspector() { Stop(); }

absl::StatusOr<DatasetQuestion> DatasetInspector::Check(
    DatasetQuestion question) const {
  if (question.max_length == 0) question.max_length = JobSpec().max_length;
  if (question.truncation.empty()) question.truncation = "right";
  if (question.template_date.empty()) {
    question.template_date = absl::FormatCivilTime(
        absl::ToCivilDay(absl::Now(), absl::UTCTimeZone()));
  }
  RETURN_IF_ERROR(CheckGiven(question));
  RETURN_IF_ERROR(CheckNumbers(question));
  RETURN_IF_ERROR(CheckWords(question));
  ASSIGN_OR_RETURN(question.dataset,
                   resolve_("dataset", question.dataset, PathKind::kFile));
  ASSIGN_OR_RETURN(question.model_name_or_path,
                   resolve_("model_name_or_path", question.model_name_or_path,
                            PathKind::kDirectory));
  RETURN_IF_ERROR(CheckTokenizer(question.model_name_or_path));
  return question;
}

void DatasetInspector::Start(InspectionId id, const DatasetQuestion& question,
                             std::function<bool()> cancelled, Done done) {
  const absl::Status posted = loop_.Post([this, id, question, cancelled, done] {
    StartNow(id, question, cancelled, done);
  });
  if (!posted.ok()) done(posted);
}

void DatasetInspector::StartNow(InspectionId id,
                                const DatasetQuestion& question,
                                const std::function<bool()>& cancelled,
                                const Done& done) {
  if (cancelled()) return done(absl::CancelledError("the call was cancelled"));
  if (running_.size() >= kMaxInspections) {
    return done(FieldError(
        absl::StatusCode::kResourceExhausted, "QUOTA", "",
        absl::StrCat("the server reads ", kMaxInspections,
                     " datasets at once, and does now; try again later")));
  }
  auto inspection = std::make_unique<Inspection>(
      loop_, options_.silence_limit, done,
      [this, id](absl::StatusOr<std::string> answer) {
        Finish(id, std::move(answer));
      });
  ChildOptions child;
  child.program = options_.python;
  child.arguments = Arguments(options_.script, question);
  child.environment = HelperEnvironment();
  child.capture_stdout = true;
  const absl::Status started = inspection->Start(child);
  if (!started.ok()) return done(started);
  running_[id] = std::move(inspection);
}

void DatasetInspector::Cancel(InspectionId id) {
  // A loop that has ended has nothing to cancel.
  loop_
      .Post([this, id] {
        const auto found = running_.find(id);
        if (found == running_.end()) return;
        found->second->Kill(absl::CancelledError("the call was cancelled"));
      })
      .IgnoreError();
}

void DatasetInspector::Finish(InspectionId id,
                              absl::StatusOr<std::string> answer) {
  const auto ended = running_.extract(id);
  ended.mapped()->done()(std::move(answer));
}

void DatasetInspector::Stop() {
  for (const auto& [id, inspection] : std::exchange(running_, {})) {
    inspection->done()(absl::UnavailableError("the server is stopping"));
  }
}

}  // namespace roundhouse
