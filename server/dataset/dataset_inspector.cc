#include "server/dataset/dataset_inspector.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/model/directory.h"
#include "base/nearest_name.h"
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
  return FieldError(FieldReason::kInvalidValue, field, text);
}

absl::Status CheckGiven(const DatasetQuestion& question) {
  const bool dataset =
      !question.dataset.empty() && !question.dataset[0].empty();
  const std::pair<const char*, bool> needed[] = {
      {"dataset", dataset},
      {"model_name_or_path", !question.model_name_or_path.empty()}};
  for (const auto& [field, given] : needed) {
    if (given) continue;
    return FieldError(FieldReason::kMissingField, field, "is missing");
  }
  if (question.dataset.size() > kMaxDataFiles) {
    return Invalid("dataset", absl::StrCat(question.dataset.size(),
                                           " names; at most ", kMaxDataFiles));
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

absl::Status CheckRows(const DatasetQuestion& question) {
  if (question.max_samples < 0 || question.max_samples > kMostSamples) {
    return Invalid("max_samples",
                   absl::StrCat(question.max_samples, " rows; from 1 to ",
                                kMostSamples, ", or 0 for all"));
  }
  const double share = question.validation_split;
  const bool held_out =
      share >= kMinValidationSplit && share <= kMaxValidationSplit;
  if (share == 0 || held_out) return absl::OkStatus();
  return Invalid("validation_split",
                 absl::StrCat("expected a number from 0 to ",
                              kMaxValidationSplit, ", got ", share));
}

absl::Status CheckColumns(const DatasetColumns& columns) {
  const std::vector<std::string>& known = DatasetColumnNames();
  for (const auto& [ours, theirs] : columns) {
    if (std::find(known.begin(), known.end(), ours) == known.end()) {
      return Invalid(
          "dataset_columns",
          absl::StrCat("\"", ours, "\" is none of ", absl::StrJoin(known, ", "),
                       DidYouMean(ours, known)));
    }
    if (theirs.empty() || theirs.size() > kMaxColumnBytes) {
      return Invalid("dataset_columns",
                     absl::StrCat(ours, ": a column's name has 1 to ",
                                  kMaxColumnBytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status Unknown(const char* field, const std::string& word,
                     const std::vector<std::string>& known) {
  return Invalid(
      field, absl::StrCat("\"", word, "\" is none of ",
                          absl::StrJoin(known, ", "), DidYouMean(word, known)));
}

absl::Status CheckWords(const DatasetQuestion& question) {
  if (!FindTruncation(question.truncation).has_value()) {
    return Unknown("truncation", question.truncation,
                   {"right", "left", "drop", "split"});
  }
  if (!FindDatasetFormat(question.format).has_value()) {
    return Unknown("dataset_format", question.format,
                   {"auto", "text", "prompt_completion", "messages", "sharegpt",
                    "alpaca"});
  }
  if (!IsTemplateDate(question.template_date)) {
    return Invalid("template_date", absl::StrCat("\"", question.template_date,
                                                 "\" is not YYYY-MM-DD"));
  }
  return absl::OkStatus();
}

// `name` is what was given for `model`.
absl::Status CheckTokenizer(const FileOpener& files, const std::string& model,
                            const std::string& name) {
  if (files.IsThere(model + "/tokenizer.json")) return absl::OkStatus();
  return FieldError(FieldReason::kInvalidModel, "model_name_or_path",
                    absl::StrCat("\"", name,
                                 "\" has no tokenizer.json; name the folder "
                                 "that has it"));
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

// How the dataset is read, or the rows that the job evaluates on.
ReadingOptions Reading(const DatasetQuestion& question, bool validation) {
  const bool own = validation && !question.validation_dataset.empty();
  return {.tokenizer_directory = question.model_name_or_path,
          .data_files = own ? question.validation_dataset : question.dataset,
          .format = DatasetFormatArgument(*FindDatasetFormat(question.format)),
          .columns = DatasetColumnsArgument(question.columns),
          .max_samples = question.max_samples,
          .validation_split = question.validation_split,
          .max_length = question.max_length,
          .truncation = question.truncation,
          .packing = question.packing,
          .seed = question.seed,
          .template_date = question.template_date,
          .given = [files = own ? question.validation_given : question.given] {
            return files;
          }};
}

std::vector<std::string> Mode(const DatasetQuestion& question,
                              bool validation) {
  std::vector<std::string> mode = {"--validate"};
  if (question.samples > 0) {
    mode = {"--preview", absl::StrCat(question.samples)};
  }
  if (validation) mode.insert(mode.end(), {"--split", "validation"});
  return mode;
}

absl::StatusOr<std::vector<GivenFile>> FindGiven(
    const FileOpener& files, const std::string& model,
    const std::vector<std::string>& dataset, uint64_t* bytes) {
  auto given = FilesToGive(files, model, dataset);
  if (!given.ok()) {
    return FieldError(FieldReason::kInvalidValue, "",
                      std::string(given.status().message()));
  }
  for (size_t i = 0; i < dataset.size(); ++i) {
    *bytes += (*given)[i].file.identity.size_bytes;
  }
  return given;
}

HelperLane LaneOf(const DatasetQuestion& question) {
  const bool is_short =
      question.samples > 0 || question.dataset_bytes <= kShortDatasetBytes;
  return is_short ? HelperLane::kShort : HelperLane::kLong;
}

absl::Status TooManyWait(const std::string& whose) {
  return FieldError(absl::StatusCode::kResourceExhausted, FieldReason::kQuota,
                    "",
                    absl::StrCat(whose,
                                 " wait for the server to read their datasets; "
                                 "try again later"));
}

absl::Status CheckRoom(const HelperLanes& lanes,
                       const DatasetQuestion& question) {
  const HelperLane lane = LaneOf(question);
  if (!question.caller.principal.empty() &&
      lanes.Waiting(lane, question.caller.principal) >=
          kWaitingInspectionsEach) {
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
  return FieldError(FieldReason::kInvalidDataset, "",
                    std::string(status.message()));
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
        absl::StatusCode::kResourceExhausted, FieldReason::kQuota, "samples",
        absl::StrCat("the answer has more than ", kMaxInspectionBytes,
                     " bytes; ask for fewer samples or a smaller "
                     "max_length")));
  }

  DatasetQuestion question;
  std::function<bool()> cancelled;
  Done done;
  bool validation = false;  // the child reads what is evaluated on
  std::string line;         // being received
  std::string last_line;
  std::string answer;                     // of children that have ended
  std::unique_ptr<DatasetHelper> helper;  // null: it waits for a slot
};

DatasetInspector::DatasetInspector(EventLoop& loop,
                                   const HelperProgram& program,
                                   const FileOpener& files, NamesOf names)
    : loop_(loop),
      program_(program),
      files_(files),
      names_(std::move(names)),
      lanes_({.short_running = kShortInspections,
              .long_running = kLongInspections,
              .running_each = kInspectionsEach}) {}

DatasetInspector::~DatasetInspector() { Stop(); }

absl::StatusOr<DatasetQuestion> DatasetInspector::Check(
    DatasetQuestion question) const {
  if (question.truncation.empty()) {
    question.truncation = TruncationName(JobSpec().truncation);
  }
  if (question.format.empty()) {
    question.format = DatasetFormatName(DatasetFormat::kAuto);
  }
  // What a job would evaluate on fails it as well.
  if (question.samples == 0 && question.validation_split > 0) {
    question.with_validation = true;
  }
  if (question.template_date.empty()) {
    question.template_date = TemplateDateAt(WallTime());
  }
  RETURN_IF_ERROR(CheckGiven(question));
  RETURN_IF_ERROR(CheckNumbers(question));
  RETURN_IF_ERROR(CheckRows(question));
  RETURN_IF_ERROR(CheckWords(question));
  RETURN_IF_ERROR(CheckColumns(question.columns));
  const PathResolver resolve = names_(question.caller, Role::kMember);
  ASSIGN_OR_RETURN(question.dataset,
                   FindDataFiles(resolve, files_, "dataset", question.dataset));
  ASSIGN_OR_RETURN(question.validation_dataset,
                   FindDataFiles(resolve, files_, "validation_dataset",
                                 question.validation_dataset));
  const std::string given_model = question.model_name_or_path;
  ASSIGN_OR_RETURN(question.model_name_or_path,
                   resolve("model_name_or_path", question.model_name_or_path,
                           PathKind::kModel));
  RETURN_IF_ERROR(
      CheckTokenizer(files_, question.model_name_or_path, given_model));
  RETURN_IF_ERROR(TakeMaxLength(files_, &question));
  ASSIGN_OR_RETURN(question.given,
                   FindGiven(files_, question.model_name_or_path,
                             question.dataset, &question.dataset_bytes));
  ASSIGN_OR_RETURN(
      question.validation_given,
      FindGiven(files_, question.model_name_or_path,
                question.validation_dataset, &question.dataset_bytes));
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
  lanes_.Add(absl::StrCat(id), LaneOf(question), question.caller.principal);
  inspections_[id] = std::move(inspection);
  StartThoseNext();
}

void DatasetInspector::StartThoseNext() {
  while (const auto next = lanes_.TakeNext()) {
    const InspectionId id = std::stoull(*next);
    StartNow(id, inspections_.at(id).get());
  }
}

void DatasetInspector::StartNow(InspectionId id, Inspection* inspection) {
  const DatasetQuestion& question = inspection->question;
  HelperProgram program = program_;
  if (LaneOf(question) == HelperLane::kShort) {
    program.total_limit = std::min(program.total_limit, kShortHelperLimit);
  }
  inspection->helper = DatasetHelper::Start(
      loop_, program, Reading(question, inspection->validation),
      Mode(question, inspection->validation),
      [inspection](const std::string& text) { inspection->OnOutput(text); },
      [this, id](const absl::Status& status) { OnEnded(id, status); });
}

void DatasetInspector::OnEnded(InspectionId id, const absl::Status& status) {
  Inspection& inspection = *inspections_.at(id);
  if (status.ok()) {
    absl::StrAppend(&inspection.answer, inspection.validation ? "\n" : "",
                    inspection.last_line);
  }
  const bool more =
      inspection.question.with_validation && !inspection.validation;
  if (!status.ok() || !more) {
    Finish(id, status);
    return StartThoseNext();
  }
  // Not from within the old child's own callback.
  inspection.validation = true;
  loop_.After(absl::ZeroDuration(), [this, id] { StartValidation(id); });
}

void DatasetInspector::StartValidation(InspectionId id) {
  Inspection* const inspection = inspections_.at(id).get();
  if (!inspection->cancelled()) return StartNow(id, inspection);
  Finish(id, absl::CancelledError("the call was cancelled"));
  StartThoseNext();
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
    inspection.done(inspection.answer);
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
