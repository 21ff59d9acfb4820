#include "client/commands/dataset.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "base/visible_text.h"
#include "client/commands/upload.h"
#include "client/tables/dataset_output.h"
#include "client/tables/message_json.h"

namespace roundhouse::client {
namespace {

// The server's limit.
constexpr int64_t kMaxSamples = 100;
constexpr size_t kMaxFiles = 128;

void ShowNames(const std::vector<std::string>& files, Session* session) {
  for (const std::string& file : files) {
    session->out() << VisibleLine(file) << "\n";
  }
}

class DatasetCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  absl::Status CheckArguments(
      const std::vector<std::string>& arguments) const override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  using Files = std::vector<std::string>;

  v1::DatasetOptions Options(const Files& files) const;
  ExitCode Validate(const Files& files, Session* session) const;
  ExitCode Preview(const Files& files, Session* session) const;
  // Checks those of the verbs that are about uploads.
  absl::Status CheckNamed(const std::string& verb, size_t names) const;

  std::string project_;
  std::string model_;
  std::string format_;
  std::vector<std::string> columns_;
  std::string validation_split_;
  double held_out_ = 0;  // as validation_split_ says
  int64_t max_samples_ = 0;
  std::string truncation_;
  int64_t max_length_ = 0;
  int64_t seed_ = -1;
  int64_t samples_ = 0;
  bool packing_ = false;
};

const CommandInfo& DatasetCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "dataset",
      "validate|preview|list|show|delete [NAME...]",
      "what a job would be trained on, and what was uploaded",
      "list shows what was uploaded (roundhouse upload), each version; show "
      "and "
      "delete\ntake a name, or a version as NAME@2. delete without one takes "
      "all "
      "versions.\n\nvalidate reads all of it as a job would: rows, tokens, "
      "what is "
      "truncated or\ndropped, why and where.  The exit code is 1 when no job "
      "could be trained on it.\n\npreview shows the first sequences with what "
      "is trained in green, or between [[ and\n]] without colours.\n\nFILE is "
      "a file, a folder of files or a pattern ('data/train-*').  It and the "
      "model are\nlooked up by the server, under its data roots.  The flags "
      "are the job file's fields.",
      1,
      1 + kMaxFiles};
  return info;
}

void DatasetCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("model", 0, "MODEL", &model_,
                   "the model whose tokenizer and chat template are used: a "
                   "directory, job:NAME or a hub id");
  flags->AddString(
      "dataset-format", 0, "FORMAT", &format_,
      "text, prompt_completion, messages, sharegpt or alpaca; what the fields "
      "say when not given");
  flags->AddStrings("dataset-columns", 0, "FIELD=COLUMN", &columns_,
                    "what the data calls a field; give it for each");
  flags->AddString("validation-split", 0, "SHARE", &validation_split_,
                   "the share of the rows that is held out of training, such "
                   "as 0.05");
  flags->AddInt("max-samples", 0, "N", 1, &max_samples_,
                "read only so many rows, the first");
  flags->AddInt(
      "max-length", 0, "N", 2, &max_length_,
      "the most tokens of a sequence; a job's default when not given");
  flags->AddString(
      "truncation", 0, "SIDE", &truncation_,
      "what becomes of longer ones: right (the default) and left cut off that "
      "end, drop leaves them out, split makes several of text");
  flags->AddBool("packing", 0, &packing_, "put several sequences into a row");
  flags->AddInt("seed", 0, "N", 0, &seed_,
                "the seed of packing and of validation-split");
  flags->AddString("project", 0, "PROJECT", &project_,
                   "of which project list, show and delete are; of all when "
                   "not given");
  flags->AddInt("samples", 'n', "N", 1, &samples_,
                "how many sequences preview shows; 3 when not given");
}

absl::Status DatasetCommand::CheckFlags() {
  std::set<std::string> fields;
  for (const std::string& column : columns_) {
    const size_t equals = column.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --dataset-columns: \"", column,
                       "\" is not FIELD=COLUMN, as in prompt=question"));
    }
    const std::string field = column.substr(0, equals);
    if (fields.insert(field).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("flag --dataset-columns: ", field, " is given twice"));
  }
  if (!validation_split_.empty() &&
      !absl::SimpleAtod(validation_split_, &held_out_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --validation-split: \"", validation_split_,
                     "\" is not a number, as 0.05 is"));
  }
  return absl::OkStatus();
}

v1::DatasetOptions DatasetCommand::Options(const Files& files) const {
  v1::DatasetOptions options;
  options.set_dataset(files[0]);
  options.mutable_more_datasets()->Assign(files.begin() + 1, files.end());
  options.set_dataset_format(format_);
  for (const std::string& column : columns_) {
    const size_t equals = column.find('=');
    (*options.mutable_dataset_columns())[column.substr(0, equals)] =
        column.substr(equals + 1);
  }
  options.set_validation_split(held_out_);
  options.set_max_samples(max_samples_);
  options.set_model_name_or_path(model_);
  options.set_max_length(max_length_);
  options.set_truncation(truncation_);
  options.set_packing(packing_);
  if (seed_ >= 0) options.set_seed(seed_);
  return options;
}

ExitCode DatasetCommand::Validate(const Files& files, Session* session) const {
  v1::ValidateDatasetRequest request;
  *request.mutable_options() = Options(files);
  v1::ValidateDatasetResponse response;
  // As long as the data is.
  UnaryContext context(session->interrupt(), absl::InfiniteDuration());
  const grpc::Status status =
      session->datasets().ValidateDataset(context.get(), request, &response);
  if (!status.ok())
    return session->Fail("dataset validate " + absl::StrJoin(files, " "),
                         status);
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << ValidationText(response);
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(MessageJson(response), 2) << "\n";
      break;
    case OutputFormat::kName:
      ShowNames(files, session);
      break;
  }
  return ExitCode::kOk;
}

ExitCode DatasetCommand::Preview(const Files& files, Session* session) const {
  v1::PreviewDatasetRequest request;
  *request.mutable_options() = Options(files);
  request.set_samples(static_cast<int32_t>(samples_));
  v1::PreviewDatasetResponse response;
  // Rows before the first that is kept may be many.
  UnaryContext context(session->interrupt(), absl::InfiniteDuration());
  const grpc::Status status =
      session->datasets().PreviewDataset(context.get(), request, &response);
  if (!status.ok())
    return session->Fail("dataset preview " + absl::StrJoin(files, " "),
                         status);
  const Environment& environment = session->environment();
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << PreviewText(
          response, environment.out_is_terminal && environment.ColorsAllowed());
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(MessageJson(response), 2) << "\n";
      break;
    case OutputFormat::kName:
      ShowNames(files, session);
      break;
  }
  return ExitCode::kOk;
}

absl::Status DatasetCommand::CheckNamed(const std::string& verb,
                                        size_t names) const {
  if (!model_.empty()) {
    return absl::InvalidArgumentError(
        "flag --model is for validate and preview");
  }
  if (verb == "list" && names > 0) {
    return absl::InvalidArgumentError("list takes no NAME; show does");
  }
  if (verb == "list" || names == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(verb, " needs one NAME"));
}

absl::Status DatasetCommand::CheckArguments(
    const std::vector<std::string>& arguments) const {
  const std::string& what = arguments[0];
  const std::vector<std::string> verbs = {"validate", "preview", "list", "show",
                                          "delete"};
  if (std::find(verbs.begin(), verbs.end(), what) == verbs.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", what,
                     "\" is none of validate, preview, list, show, "
                     "delete",
                     DidYouMean(what, verbs)));
  }
  if (what != "preview" && samples_ != 0) {
    return absl::InvalidArgumentError("flag --samples is for preview");
  }
  if (what != "validate" && what != "preview") {
    return CheckNamed(what, arguments.size() - 1);
  }
  if (arguments.size() < 2) {
    return absl::InvalidArgumentError("FILE is missing");
  }
  if (model_.empty()) {
    return absl::InvalidArgumentError("flag --model is missing");
  }
  if (!project_.empty()) {
    return absl::InvalidArgumentError(
        "flag --project is for list, show and delete");
  }
  if (samples_ <= kMaxSamples) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "flag --samples: ", samples_, " is more than ", kMaxSamples));
}

ExitCode DatasetCommand::Run(const std::vector<std::string>& arguments,
                             Session* session) {
  const std::string& verb = arguments[0];
  const Files files(arguments.begin() + 1, arguments.end());
  if (verb == "validate") return Validate(files, session);
  if (verb == "preview") return Preview(files, session);
  const UploadQuestion question{
      .kind = v1::UPLOAD_KIND_DATASET,
      .project = project_,
      .name =
          files.empty() ? "" : WithoutKind(files[0], v1::UPLOAD_KIND_DATASET)};
  if (verb == "list") return ListUploads(question, session);
  return verb == "show" ? ShowUpload(question, session)
                        : DeleteUploads(question, session);
}

}  // namespace

std::unique_ptr<Command> MakeDatasetCommand() {
  return std::make_unique<DatasetCommand>();
}

}  // namespace roundhouse::client
