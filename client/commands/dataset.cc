#include "client/commands/dataset.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/visible_text.h"
#include "client/dataset_output.h"
#include "client/message_json.h"

namespace roundhouse::client {
namespace {

// The server's limit.
constexpr int64_t kMaxSamples = 100;

class DatasetCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  v1::DatasetOptions Options(const std::string& file) const;
  ExitCode Validate(const std::string& file, Session* session) const;
  ExitCode Preview(const std::string& file, Session* session) const;

  std::string model_;
  std::string truncation_;
  int64_t max_length_ = 0;
  int64_t seed_ = -1;
  int64_t samples_ = 0;
  bool packing_ = false;
};

const CommandInfo& DatasetCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "dataset",
      "validate|preview FILE",
      "what a job would be trained on",
      "validate reads the whole file as a job would: rows, tokens, what is "
      "truncated or\ndropped, why and where.  The exit code is 1 when no job "
      "could be trained on it.\n\npreview shows the first sequences with what "
      "is trained in green, or between [[ and\n]] without colours.\n\nFILE and "
      "the model are looked up by the server, under its data roots.",
      2,
      2};
  return info;
}

void DatasetCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("model", 0, "MODEL", &model_,
                   "whose tokenizer and chat template: a directory, or "
                   "job:NAME");
  flags->AddInt("max-length", 0, "N", 2, &max_length_,
                "of a sequence, in tokens; else a job's default");
  flags->AddString("truncation", 0, "SIDE", &truncation_,
                   "of longer ones: right (the default), left or drop");
  flags->AddBool("packing", 0, &packing_, "several sequences a row");
  flags->AddInt("seed", 0, "N", 0, &seed_, "of packing");
  flags->AddInt("samples", 'n', "N", 1, &samples_,
                "how many preview shows; 3 when not given");
}

absl::Status DatasetCommand::CheckFlags() {
  return model_.empty() ? absl::InvalidArgumentError("flag --model is missing")
                        : absl::OkStatus();
}

v1::DatasetOptions DatasetCommand::Options(const std::string& file) const {
  v1::DatasetOptions options;
  options.set_dataset(file);
  options.set_model_name_or_path(model_);
  options.set_max_length(max_length_);
  options.set_truncation(truncation_);
  options.set_packing(packing_);
  if (seed_ >= 0) options.set_seed(seed_);
  return options;
}

ExitCode DatasetCommand::Validate(const std::string& file,
                                  Session* session) const {
  v1::ValidateDatasetRequest request;
  *request.mutable_options() = Options(file);
  v1::ValidateDatasetResponse response;
  // As long as the data is.
  UnaryContext context(session->interrupt(), absl::InfiniteDuration());
  const grpc::Status status =
      session->datasets().ValidateDataset(context.get(), request, &response);
  if (!status.ok()) return session->Fail("dataset validate " + file, status);
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << ValidationText(response);
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(MessageJson(response), 2) << "\n";
      break;
    case OutputFormat::kName:
      session->out() << VisibleLine(file) << "\n";
      break;
  }
  return ExitCode::kOk;
}

ExitCode DatasetCommand::Preview(const std::string& file,
                                 Session* session) const {
  v1::PreviewDatasetRequest request;
  *request.mutable_options() = Options(file);
  request.set_samples(static_cast<int32_t>(samples_));
  v1::PreviewDatasetResponse response;
  // Rows before the first that is kept may be many.
  UnaryContext context(session->interrupt(), absl::InfiniteDuration());
  const grpc::Status status =
      session->datasets().PreviewDataset(context.get(), request, &response);
  if (!status.ok()) return session->Fail("dataset preview " + file, status);
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
      session->out() << VisibleLine(file) << "\n";
      break;
  }
  return ExitCode::kOk;
}

ExitCode DatasetCommand::Run(const std::vector<std::string>& arguments,
                             Session* session) {
  const std::string& what = arguments[0];
  std::string usage;
  if (what != "validate" && what != "preview") {
    usage = absl::StrCat("\"", what, "\" is neither validate nor preview");
  } else if (what == "validate" && samples_ != 0) {
    usage = "flag --samples is for preview";
  } else if (samples_ > kMaxSamples) {
    usage = absl::StrCat("flag --samples: ", samples_, " is more than ",
                         kMaxSamples);
  }
  if (!usage.empty()) {
    session->err() << "roundhouse: dataset: " << usage
                   << "\nSee: roundhouse dataset --help\n";
    return ExitCode::kUsage;
  }
  return what == "validate" ? Validate(arguments[1], session)
                            : Preview(arguments[1], session);
}

}  // namespace

std::unique_ptr<Command> MakeDatasetCommand() {
  return std::make_unique<DatasetCommand>();
}

}  // namespace roundhouse::client
