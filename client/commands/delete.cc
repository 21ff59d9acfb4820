#include "client/commands/delete.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/visible_text.h"
#include "client/consent.h"
#include "client/patient_call.h"
#include "client/tables/disk_output.h"
#include "client/tables/message_json.h"

namespace roundhouse::client {
namespace {

class DeleteCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  grpc::Status Ask(const v1::DeleteFineTuningJobRequest& request,
                   Session* session,
                   v1::DeleteFineTuningJobResponse* response) const;

  bool yes_ = false;
  bool output_ = false;
};

const CommandInfo& DeleteCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "delete",
      "JOB",
      "a job that has ended goes, for good, with its checkpoints",
      "Shows what goes, with its bytes, and asks: the job's record, "
      "checkpoints, prepared data\nand logs.  Its result, which was trained, "
      "stays unless --output is given; it is then\namong the server's outputs "
      "like an export, under its path.\n\nA job that has not ended is "
      "cancelled first.  One whose checkpoint or result is in use\nis not "
      "deleted: by a job that has not ended, an export, a sample, a download.",
      1,
      1};
  return info;
}

void DeleteCommand::DefineFlags(FlagSet* flags) {
  flags->AddBool("yes", 'y', &yes_, "delete without asking");
  flags->AddBool("output", 0, &output_,
                 "delete its result, too: the model or adapter that it made");
}

grpc::Status DeleteCommand::Ask(
    const v1::DeleteFineTuningJobRequest& request, Session* session,
    v1::DeleteFineTuningJobResponse* response) const {
  return CallPatiently(session, [&] {
    // As long as its files take.
    UnaryContext context(session->interrupt(), absl::InfiniteDuration());
    return session->jobs().DeleteFineTuningJob(context.get(), request,
                                               response);
  });
}

ExitCode DeleteCommand::Run(const std::vector<std::string>& arguments,
                            Session* session) {
  const std::string& job = arguments[0];
  const std::string doing = "delete " + job;
  v1::DeleteFineTuningJobRequest request;
  request.set_name(job);
  request.set_output(output_);
  request.set_validate_only(true);
  v1::DeleteFineTuningJobResponse what;
  grpc::Status status = Ask(request, session, &what);
  if (!status.ok()) return session->Fail(doing, status);
  session->err() << DeletionText(job, what);
  const ExitCode said = AskBeforeDeleting(
      "delete", absl::StrCat("Delete ", job, " for good?"), yes_, session);
  if (said != ExitCode::kOk) return said;
  request.set_validate_only(false);
  v1::DeleteFineTuningJobResponse response;
  status = Ask(request, session, &response);
  if (!status.ok()) return session->Fail(doing, status);
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << "Deleted " << VisibleLine(job) << ": "
                     << FormatBytes(BytesOf(response)) << "\n";
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(MessageJson(response), 2) << "\n";
      break;
    case OutputFormat::kName:
      session->out() << VisibleLine(job) << "\n";
      break;
  }
  session->err() << LeftText(response.left());
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeDeleteCommand() {
  return std::make_unique<DeleteCommand>();
}

}  // namespace roundhouse::client
