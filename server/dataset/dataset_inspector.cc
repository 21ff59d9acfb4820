#include "server/dataset/dataset_inspector.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/model/directory.h"
#include "base/status.h"
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
  if (!FindTruncation(question.truncation).has_value()) {
    return Invalid("truncation", absl::StrCat("\"", question.truncation,
                                              "\" is none of right, left, "
                                              "drop"));
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
absl::Status CheckModelAllows(const FileOpener& files,
                              const DatasetQuestion& question) {
  const auto model = OpenModelDirectory(files, question.model_name_or_path,
                                        {.init = ModelInit::kRandom});
  if (absl::IsNotFound(model.status())) return absl::OkStatus();
  if (!model.ok()) return ModelError(model.status());
  return CheckMaxLength(question.max_length, model->config);
}

ReadingOptions Reading(const DatasetQuestion& question) {
  return {.tokenizer_directory = question.model_name_or_path,
          .data_file = question.dataset,
          .max_length = question.max_length,
          .truncation = question.truncation,
          .packing = question.packing,
          .seed = question.seed,
          .template_date = question.template_date};
}

std::vector<std::string> Mode(const DatasetQuestion& question) {
  if (question.samples == 0) return {"--validate"};
  return {"--preview", absl::StrCat(question.samples)};
}

absl::Status Explained(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return status;
  return FieldError("INVALID_DATASET", "", std::string(status.message()));
}

}  // namespace

// One child.  Loop thread.
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

  Done done;
  std::string line;  // being received
  std::string last_line;
  std::unique_ptr<DatasetHelper> helper;
};

DatasetInspector::DatasetInspector(EventLoop& loop,
                                   const HelperProgram& program,
                                   const FileOpener& files,
                                   PathResolver resolve)
    : loop_(loop),
      program_(program),
      files_(files),
      resolve_(std::move(resolve)) {}

DatasetInspector::~DatasetInspector() { Stop(); }

absl::StatusOr<DatasetQuestion> DatasetInspector::Check(
    DatasetQuestion question) const {
  if (question.max_length == 0) question.max_length = JobSpec().max_length;
  if (question.truncation.empty()) {
    question.truncation = TruncationName(JobSpec().truncation);
  }
  if (question.template_date.empty()) {
    question.template_date = TemplateDateAt(absl::Now());
  }
  RETURN_IF_ERROR(CheckGiven(question));
  RETURN_IF_ERROR(CheckNumbers(question));
  RETURN_IF_ERROR(CheckWords(question));
  ASSIGN_OR_RETURN(question.dataset,
                   resolve_("dataset", question.dataset, PathKind::kFile));
  ASSIGN_OR_RETURN(question.model_name_or_path,
                   resolve_("model_name_or_path", question.model_name_or_path,
                            PathKind::kModel));
  RETURN_IF_ERROR(CheckTokenizer(files_, question.model_name_or_path));
  RETURN_IF_ERROR(CheckModelAllows(files_, question));
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
  auto inspection = std::make_unique<Inspection>();
  inspection->done = done;
  auto helper = DatasetHelper::Start(
      loop_, program_, Reading(question), Mode(question),
      [self = inspection.get()](const std::string& text) {
        self->OnOutput(text);
      },
      [this, id](const absl::Status& status) { Finish(id, status); });
  if (!helper.ok()) return done(helper.status());
  inspection->helper = *std::move(helper);
  running_[id] = std::move(inspection);
}

void DatasetInspector::Cancel(InspectionId id) {
  // A loop that has ended has nothing to cancel.
  loop_
      .Post([this, id] {
        const auto found = running_.find(id);
        if (found == running_.end()) return;
        found->second->helper->Kill(
            absl::CancelledError("the call was cancelled"));
      })
      .IgnoreError();
}

void DatasetInspector::Finish(InspectionId id, const absl::Status& status) {
  const auto ended = running_.extract(id);
  const Inspection& inspection = *ended.mapped();
  if (status.ok()) {
    inspection.done(inspection.last_line);
  } else {
    inspection.done(Explained(status));
  }
}

void DatasetInspector::Stop() {
  for (const auto& [id, inspection] : std::exchange(running_, {})) {
    inspection->done(absl::UnavailableError("the server is stopping"));
  }
}

}  // namespace roundhouse
