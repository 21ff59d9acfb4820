#include "server/dataset/dataset_inspector.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/model/directory.h"
#include "base/status.h"
#include "server/dataset/helper_limits.h"
#include "server/spec/model_limits.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

// The helper's own bounds.
constexpr int64_t kFewestTokens = 2;
constexpr int64_t kMostTokens = (int64_t{1} << 31) - 1;

absl::Status Invalid(const std::string& field, const std::string& text) {
  return FieldError("INVALID_VALUE", field, absl::StrCat(field, ": ", text));
}

absl::Status CheckGiven(const DatasetQuestion& question) {
  const bool dataset =
      !question.dataset.empty() && !question.dataset[0].empty();
  const std::pair<const char*, bool> needed[] = {
      {"dataset", dataset},
      {"model_name_or_path", !question.model_name_or_path.empty()}};
  for (const auto& [field, given] : needed) {
    if (given) continue;
    return FieldError("MISSING_FIELD", field,
                      absl::StrCat(field, ": is missing"));
  }
  return absl::OkStatus();
}

absl::Status CheckNumbers(const DatasetQuestion& question) {
  const bool said = question.max_length != 0;
  if (said && (question.max_length < kFewestTokens ||
               question.max_length > kMostTokens)) {
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
  if (!FindTruncation(question.truncation).has_value()) {
    return Invalid("truncation", absl::StrCat("\"", question.truncation,
                                              "\" is none of right, left, "
                                              "drop, split"));
  }
  if (!IsTemplateDate(question.template_date)) {
    return Invalid("template_date", absl::StrCat("\"", question.template_date,
                                                 "\" is not YYYY-MM-DD"));
  }
  return absl::OkStatus();
}

absl::Status CheckTokenizer(const FileOpener& files, const std::string& model) {
  const std::string path = model + "/tokenizer.json";
  if (files.IsThere(path)) return absl::OkStatus();
  return FieldError(
      "INVALID_MODEL", "model_name_or_path",
      absl::StrCat("model_name_or_path: ", path, ": no such file"));
}

// A directory with a tokenizer alone says nothing of lengths, and no weights
// are needed to look at data.
absl::Status TakeMaxLength(const FileOpener& files, DatasetQuestion* question) {
  int64_t& max_length = question->max_length;
  const auto model = OpenModelDirectory(files, question->model_name_or_path,
                                        {.init = ModelInit::kRandom});
  if (absl::IsNotFound(model.status())) {
    if (max_length == 0) max_length = kUsualMaxLength;
    return absl::OkStatus();
  }
  if (!model.ok()) return ModelError(model.status());
  if (max_length == 0)
    max_length = UsualMaxLength(model->config.max_position_tokens);
  return CheckMaxLength(max_length, model->config);
}

ReadingOptions Reading(const DatasetQuestion& question) {
  return {.tokenizer_directory = question.model_name_or_path,
          .data_files = question.dataset,
          .format = question.format,
          .columns = question.columns,
          .max_samples = question.max_samples,
          .validation_split = question.validation_split,
          .max_length = question.max_length,
          .truncation = question.truncation,
          .packing = question.packing,
          .seed = question.seed,
          .template_date = question.template_date,
          .given = question.given};
}

std::vector<std::string> Mode(const DatasetQuestion& question) {
  if (question.samples == 0) return {"--validate"};
  return {"--preview", absl::StrCat(question.samples)};
}

HelperLane LaneOf(const DatasetQuestion& question) {
  const bool is_short =
      question.samples > 0 || question.dataset_bytes <= kShortDatasetBytes;
  return is_short ? HelperLane::kShort : HelperLane::kLong;
}

absl::Status TooManyWait(const std::string& whose) {
  return FieldError(absl::StatusCode::kResourceExhausted, "QUOTA", "",
                    absl::StrCat(whose,
                                 " wait for the server to read their datasets; "
                                 "try again later"));
}

absl::Status CheckRoom(const HelperLanes& lanes,
                       const DatasetQuestion& question) {
  const HelperLane lane = LaneOf(question);
  if (!question.principal.empty() &&
      lanes.Waiting(lane, question.principal) >= kWaitingInspectionsEach) {
    return TooManyWait(
        absl::StrCat(kWaitingInspectionsEach, " of your requests"));
  }
  if (lanes.Waiting(lane) >= kWaitingInspections) {
    return TooManyWait(absl::StrCat(kWaitingInspections, " requests"));
  }
  return absl::OkStatus();
}

absl::Status Explained(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return status;
  return FieldError("INVALID_DATASET", "", std::string(status.message()));
}

}  // namespace

// One child, or one that will be.  Loop thread.
struct DatasetInspector::Inspection {
  // Keeps the last whole line; what comes before it is progress.
  void OnOutput(const std::string& text) {
    for (const char c : text) {
      if (c == '\n') {
        last_line = std::exchange(line, "");
      } else {
        line += c;
      }
    }
    if (line.size() <= kMaxInspectionBytes) return;
    line.clear();
    helper->Kill(FieldError(
        absl::StatusCode::kResourceExhausted, "QUOTA", "samples",
        absl::StrCat("samples: the answer has more than ", kMaxInspectionBytes,
                     " bytes; ask for fewer samples or a smaller "
                     "max_length")));
  }

  DatasetQuestion question;
  std::function<bool()> cancelled;
  Done done;
  std::string line;  // being received
  std::string last_line;
  std::unique_ptr<DatasetHelper> helper;  // null: it waits for a slot
};

DatasetInspector::DatasetInspector(EventLoop& loop,
                                   const HelperProgram& program,
                                   const FileOpener& files,
                                   PathResolver resolve)
    : loop_(loop),
      program_(program),
      files_(files),
      resolve_(std::move(resolve)),
      lanes_({.short_running = kShortInspections,
              .long_running = kLongInspections,
              .running_each = kInspectionsEach}) {}

DatasetInspector::~DatasetInspector() { Stop(); }

absl::StatusOr<DatasetQuestion> DatasetInspector::Check(
    DatasetQuestion question) const {
  if (question.truncation.empty()) {
    question.truncation = TruncationName(JobSpec().truncation);
  }
  if (question.template_date.empty()) {
    question.template_date = TemplateDateAt(absl::Now());
  }
  RETURN_IF_ERROR(CheckGiven(question));
  RETURN_IF_ERROR(CheckNumbers(question));
  RETURN_IF_ERROR(CheckWords(question));
  ASSIGN_OR_RETURN(question.dataset, FindDataFiles(resolve_, files_, "dataset",
                                                   question.dataset));
  ASSIGN_OR_RETURN(question.model_name_or_path,
                   resolve_("model_name_or_path", question.model_name_or_path,
                            PathKind::kModel));
  RETURN_IF_ERROR(CheckTokenizer(files_, question.model_name_or_path));
  RETURN_IF_ERROR(TakeMaxLength(files_, &question));
  auto given =
      FilesToGive(files_, question.model_name_or_path, question.dataset);
  if (!given.ok()) {
    return FieldError("INVALID_VALUE", "",
                      std::string(given.status().message()));
  }
  question.given = *std::move(given);
  for (size_t i = 0; i < question.dataset.size(); ++i) {
    question.dataset_bytes += question.given[i].file.identity.size_bytes;
  }
  return question;
}

void DatasetInspector::Start(InspectionId id, const DatasetQuestion& question,
                             std::function<bool()> cancelled, Done done) {
  const absl::Status posted = loop_.Post([this, id, question, cancelled, done] {
    auto inspection = std::make_unique<Inspection>();
    inspection->question = question;
    inspection->cancelled = cancelled;
    inspection->done = done;
    Admit(id, std::move(inspection));
  });
  if (!posted.ok()) done(posted);
}

void DatasetInspector::Admit(InspectionId id,
                             std::unique_ptr<Inspection> inspection) {
  if (inspection->cancelled()) {
    return inspection->done(absl::CancelledError("the call was cancelled"));
  }
  const DatasetQuestion& question = inspection->question;
  const absl::Status room = CheckRoom(lanes_, question);
  if (!room.ok()) return inspection->done(room);
  lanes_.Add(absl::StrCat(id), LaneOf(question), question.principal);
  inspections_[id] = std::move(inspection);
  StartThoseNext();
}

void DatasetInspector::StartThoseNext() {
  while (const auto next = lanes_.TakeNext()) {
    const InspectionId id = std::stoull(*next);
    const absl::Status started = StartNow(id, inspections_.at(id).get());
    if (!started.ok()) Finish(id, started);
  }
}

absl::Status DatasetInspector::StartNow(InspectionId id,
                                        Inspection* inspection) {
  const DatasetQuestion& question = inspection->question;
  HelperProgram program = program_;
  if (LaneOf(question) == HelperLane::kShort) {
    program.total_limit = std::min(program.total_limit, kShortHelperLimit);
  }
  ASSIGN_OR_RETURN(
      inspection->helper,
      DatasetHelper::Start(
          loop_, program, Reading(question), Mode(question),
          [inspection](const std::string& text) { inspection->OnOutput(text); },
          [this, id](const absl::Status& status) {
            Finish(id, status);
            StartThoseNext();
          }));
  return absl::OkStatus();
}

void DatasetInspector::Cancel(InspectionId id) {
  // A loop that has ended has nothing to cancel.
  loop_
      .Post([this, id] {
        const auto found = inspections_.find(id);
        if (found == inspections_.end()) return;
        const absl::Status why = absl::CancelledError("the call was cancelled");
        if (found->second->helper == nullptr) return Finish(id, why);
        found->second->helper->Kill(why);
      })
      .IgnoreError();
}

void DatasetInspector::Finish(InspectionId id, const absl::Status& status) {
  lanes_.Remove(absl::StrCat(id));
  const auto ended = inspections_.extract(id);
  const Inspection& inspection = *ended.mapped();
  if (status.ok()) {
    inspection.done(inspection.last_line);
  } else {
    inspection.done(Explained(status));
  }
}

void DatasetInspector::Stop() {
  lanes_.Clear();
  for (const auto& [id, inspection] : std::exchange(inspections_, {})) {
    inspection->done(absl::UnavailableError("the server is stopping"));
  }
}

}  // namespace roundhouse
