#include "client/commands/submit.h"

#include <ostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/visible_text.h"
#include "client/commands/change.h"
#include "client/commands/local_paths.h"
#include "client/error_text.h"
#include "client/files.h"
#include "client/follow.h"
#include "client/interrupt.h"
#include "client/tables/dataset_output.h"
#include "client/tables/dry_run.h"
#include "client/tables/message_json.h"

namespace roundhouse::client {
namespace {

// The server's limit of a job file.
constexpr size_t kMaxJobFileBytes = 1 << 20;

void ShowWarnings(const v1::FineTuningJob& job, Session* session) {
  for (const std::string& warning : job.warnings()) {
    session->err() << "Warning: " << MessageText(warning) << "\n";
  }
}

// 128 random bits.
std::string NewRequestId() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) {
    absl::StrAppendFormat(&id, "%08x", device());
  }
  return id;
}

bool MayHaveArrived(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
         status.error_code() == grpc::StatusCode::CANCELLED;
}

class SubmitCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  grpc::Status Create(const v1::CreateFineTuningJobRequest& request,
                      Session* session, v1::FineTuningJob* job) const;
  ExitCode Refused(const grpc::Status& status, Session* session) const;
  ExitCode ShowDryRun(const v1::FineTuningJob& job, Session* session) const;
  ExitCode Wait(const v1::FineTuningJob& job, Session* session) const;

  std::string file_;
  std::string request_id_;
  std::string project_;
  std::string priority_;
  bool wait_ = false;
  bool dry_run_ = false;
  bool upload_ = false;
};

const CommandInfo& SubmitCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "submit", "-f FILE", "send a job file to the server",
      "Prints the new job's name.  With --wait, progress goes to standard "
      "error, the\nexit code says how the job ended, and Ctrl-C leaves it "
      "running.\n\nWhen the server can't be reached, the request is sent again "
      "for a while, always\nwith the same request id, so that no job is made "
      "twice."};
  return info;
}

void SubmitCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("file", 'f', "FILE", &file_,
                   "the job file (YAML or JSON); - is standard input");
  flags->AddBool("wait", 0, &wait_, "follow the job to its end");
  flags->AddBool("dry-run", 0, &dry_run_,
                 "let the server check the file, say what the job would need "
                 "and show a sample; no job is made");
  flags->AddBool("upload", 0, &upload_,
                 "upload datasets and the adapter that are files or "
                 "directories here");
  flags->AddString("project", 0, "PROJECT", &project_,
                   "the job's project; when not given, default or the only one "
                   "that you are in");
  flags->AddString("priority", 0, "PRIORITY", &priority_,
                   "urgent, normal or backfill, whatever the file says");
  flags->AddString("request-id", 0, "ID", &request_id_,
                   "a name of this request, made up when not given; the same "
                   "one makes no second job");
}

absl::Status SubmitCommand::CheckFlags() {
  if (file_.empty()) {
    return absl::InvalidArgumentError("flag --file is missing");
  }
  if (wait_ && dry_run_) {
    return absl::InvalidArgumentError(
        "flags --wait and --dry-run exclude each other");
  }
  if (priority_.empty()) return absl::OkStatus();
  const absl::Status priority = ParsePriority(priority_).status();
  if (priority.ok()) return priority;
  return absl::InvalidArgumentError(
      absl::StrCat("flag --priority: ", priority.message()));
}

grpc::Status SubmitCommand::Create(
    const v1::CreateFineTuningJobRequest& request, Session* session,
    v1::FineTuningJob* job) const {
  const RetryPolicy& retry = session->environment().submit_retry;
  for (int failures = 0;;) {
    // A dry run reads the dataset's beginning, which has limits of its own.
    UnaryContext context(session->interrupt(),
                         dry_run_ ? absl::InfiniteDuration() : kCallDeadline);
    const grpc::Status status =
        session->jobs().CreateFineTuningJob(context.get(), request, job);
    ++failures;
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE ||
        CertificateRefused(status) || failures >= retry.attempts) {
      return status;
    }
    if (failures == 1) {
      session->err() << "roundhouse: no answer from the server; trying again\n"
                     << std::flush;
    }
    if (!session->interrupt()->Wait(retry.DelayAfter(failures))) {
      return status;
    }
  }
}

ExitCode SubmitCommand::Refused(const grpc::Status& status,
                                Session* session) const {
  const ExitCode code = session->Fail("submit " + file_, status);
  if (MayHaveArrived(status) && !dry_run_) {
    session->err() << "The job may have been accepted.  To send it again "
                      "without making two: "
                   << session->CommandLine(absl::StrCat(
                          "submit -f ", file_,
                          priority_.empty() ? "" : " --priority ", priority_,
                          " --request-id ", request_id_))
                   << "\n";
  }
  return code;
}

ExitCode SubmitCommand::ShowDryRun(const v1::FineTuningJob& job,
                                   Session* session) const {
  const nlohmann::ordered_json json = JobJson(job);
  if (session->format() == OutputFormat::kJson) {
    session->out() << JsonText(json, 2) << "\n";
  }
  session->err() << "The server would accept " << VisibleLine(file_)
                 << "; no job was made.\n"
                 << std::flush;
  if (session->format() == OutputFormat::kTable) {
    const Environment& environment = session->environment();
    v1::PreviewDatasetResponse preview;
    *preview.add_samples() = job.sample();
    session->out() << DryRunText(json["resolved_spec"], job.needs())
                   << "\nThe first sample:\n"
                   << PreviewText(preview, environment.out_is_terminal &&
                                               environment.ColorsAllowed())
                   << "\n-o json has every field.\n";
  }
  if (!job.message().empty()) {
    session->err() << MessageText(job.message()) << "\n";
  }
  return ExitCode::kOk;
}

ExitCode SubmitCommand::Wait(const v1::FineTuningJob& job,
                             Session* session) const {
  v1::FineTuningJob ended;
  const ExitCode code = FollowJob(
      session, job.name(),
      session->Printer(&session->err(), session->environment().err_is_terminal),
      [](const auto&) {}, &ended);
  if (session->format() == OutputFormat::kJson && !ended.name().empty()) {
    session->out() << JsonText(JobJson(ended), 2) << "\n";
  }
  return code;
}

ExitCode SubmitCommand::Run(const std::vector<std::string>&, Session* session) {
  absl::StatusOr<std::string> text = ReadSmallFile(file_, kMaxJobFileBytes);
  if (!text.ok()) {
    session->err() << "roundhouse: submit: "
                   << MessageText(std::string(text.status().message())) << "\n";
    return ExitCode::kError;
  }
  if (request_id_.empty()) {
    request_id_ = NewRequestId();
  }
  v1::CreateFineTuningJobRequest request;
  request.set_text(*std::move(text));
  request.set_request_id(request_id_);
  request.set_project(project_);
  request.set_validate_only(dry_run_);
  request.set_file_name(file_);
  if (!priority_.empty()) request.set_priority(*ParsePriority(priority_));
  v1::FineTuningJob job;
  grpc::Status status;
  if (upload_) status = UploadLocalPaths(&request, session);
  if (!status.ok()) return session->Fail("submit " + file_, status);
  status = Create(request, session, &job);
  if (!status.ok()) {
    const ExitCode code = Refused(status, session);
    if (!upload_) session->err() << LocalPathHint(request, status, session);
    return code;
  }
  ShowWarnings(job, session);
  if (dry_run_) {
    return ShowDryRun(job, session);
  }
  if (session->format() == OutputFormat::kJson && !wait_) {
    session->out() << JsonText(JobJson(job), 2) << "\n";
  } else if (session->format() == OutputFormat::kName) {
    session->out() << VisibleLine(job.name()) << "\n" << std::flush;
  } else if (session->format() == OutputFormat::kTable) {
    session->out() << VisibleLine(ShortName(job.name())) << "\n" << std::flush;
  }
  return wait_ ? Wait(job, session) : ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeSubmitCommand() {
  return std::make_unique<SubmitCommand>();
}

}  // namespace roundhouse::client
