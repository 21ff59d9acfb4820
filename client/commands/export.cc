#include "client/commands/export.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/visible_text.h"
#include "client/interrupt.h"
#include "client/tables/message_json.h"
#include "proto/roundhouse/v1/checkpoint.grpc.pb.h"

namespace roundhouse::client {
namespace {

const char* KindText(v1::ExportKind kind) {
  switch (kind) {
    case v1::EXPORT_KIND_ADAPTER:
      return "adapter";
    case v1::EXPORT_KIND_MERGED:
      return "merged model";
    case v1::EXPORT_KIND_FULL:
      return "model";
    default:
      return "";
  }
}

// "merged model: 45%, 3.2 GiB of 7.1 GiB".
std::string ExportLine(const v1::ExportCheckpointResponse& progress) {
  if (progress.total_bytes() == 0) return "waiting";
  return absl::StrFormat("%s: %d%%, %s of %s", KindText(progress.kind()),
                         100 * progress.done_bytes() / progress.total_bytes(),
                         FormatBytes(progress.done_bytes()),
                         FormatBytes(progress.total_bytes()));
}

// Shows how far it is: one line that is written again on a terminal, a line
// from time to time elsewhere.
class ExportProgressPrinter {
 public:
  explicit ExportProgressPrinter(Environment* environment)
      : environment_(*environment) {}

  void Update(const v1::ExportCheckpointResponse& progress) {
    const std::string line = ExportLine(progress);
    if (environment_.err_is_terminal) {
      *environment_.err << "\r\x1b[K" << line << std::flush;
      shown_ = true;
      return;
    }
    const absl::Time now = environment_.now();
    if (now < next_) return;
    next_ = now + kPlainLineInterval;
    *environment_.err << line << "\n" << std::flush;
  }

  // Leaves the last line standing.
  void Finish() {
    if (shown_) *environment_.err << "\n";
    shown_ = false;
  }

 private:
  Environment& environment_;
  bool shown_ = false;
  absl::Time next_ = absl::InfinitePast();
};

class ExportCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  v1::ExportCheckpointRequest Request(const std::string& source) const;

  std::string output_;
  std::string dtype_;
  bool merge_ = false;
};

const CommandInfo& ExportCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "export",
      "JOB|CHECKPOINT|DIR",
      "an adapter or a model as a directory of its own",
      "What a job left (job-7, or its output_name), one of its checkpoints\n"
      "(job-7/checkpoint-40) or a directory under the server's data roots is "
      "copied to a\nnew directory: an adapter for PEFT, a full model for "
      "transformers.\n\nWith --merge an adapter and its base become one full "
      "model: W + (alpha / r) B A,\ncomputed in fp32 and rounded once.\n\n"
      "The server writes the directory, and prints its name when it is whole; "
      "training\ngoes on meanwhile.  Ctrl-C cancels, and nothing is left.",
      1,
      1};
  return info;
}

void ExportCommand::DefineFlags(FlagSet* flags) {
  flags->AddBool("merge", 0, &merge_, "merge an adapter into its base");
  flags->AddString("dtype", 0, "DTYPE", &dtype_,
                   "the dtype of the weights: fp32, bf16 or fp16; as they are "
                   "when not given");
  flags->AddString(
      "output", 0, "NAME|DIR", &output_,
      "where to: a name among the server's outputs, or a directory to make "
      "under a data root");
}

absl::Status ExportCommand::CheckFlags() {
  return output_.empty()
             ? absl::InvalidArgumentError("flag --output is missing")
             : absl::OkStatus();
}

v1::ExportCheckpointRequest ExportCommand::Request(
    const std::string& source) const {
  v1::ExportCheckpointRequest request;
  request.set_source(source);
  request.set_kind(merge_ ? v1::EXPORT_KIND_MERGED
                          : v1::EXPORT_KIND_UNSPECIFIED);
  request.set_dtype(dtype_);
  request.set_output(output_);
  return request;
}

ExitCode ExportCommand::Run(const std::vector<std::string>& arguments,
                            Session* session) {
  // As long as the model is.
  UnaryContext context(session->interrupt(), absl::InfiniteDuration());
  const auto reader = session->checkpoints().ExportCheckpoint(
      context.get(), Request(arguments[0]));
  ExportProgressPrinter printer(&session->environment());
  v1::ExportCheckpointResponse message;
  v1::ExportCheckpointResponse last;
  while (reader->Read(&message)) {
    last = message;
    printer.Update(message);
  }
  printer.Finish();
  const grpc::Status status = reader->Finish();
  if (!status.ok()) return session->Fail("export " + arguments[0], status);
  if (last.path().empty()) {
    return session->Fail(
        "export " + arguments[0],
        grpc::Status(grpc::StatusCode::INTERNAL, "the server named no path"));
  }
  if (session->format() == OutputFormat::kJson) {
    session->out() << JsonText(MessageJson(last), 2) << "\n";
  } else {
    session->out() << VisibleLine(last.path()) << "\n";
  }
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeExportCommand() {
  return std::make_unique<ExportCommand>();
}

}  // namespace roundhouse::client
