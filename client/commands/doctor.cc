#include "client/commands/doctor.h"

#include <ostream>

#include "base/version.h"
#include "base/visible_text.h"
#include "client/tables/doctor_output.h"
#include "client/tables/message_json.h"

namespace roundhouse::client {
namespace {

// The server starts programs to answer.
constexpr absl::Duration kDiagnosisDeadline = absl::Minutes(2);

class DoctorCommand : public Command {
 public:
  const CommandInfo& info() const override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  // What this side finds, and behind it what the server does.
  static v1::Diagnosis Look(Session* session);
};

const CommandInfo& DoctorCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "doctor", "", "whether client and server are well, and what to do if not",
      "Each line is a check: its verdict, what was found, and below it a "
      "command that\nmends it.  The server's part takes some seconds.\n\n"
      "Exit code 1 if a check found a problem, else 0."};
  return info;
}

v1::Diagnosis DoctorCommand::Look(Session* session) {
  v1::Diagnosis all;
  *all.add_findings() = CheckAddress(session->address());
  UnaryContext first(session->interrupt());
  v1::Server server;
  const grpc::Status status =
      session->system().GetServer(first.get(), v1::GetServerRequest(), &server);
  *all.add_findings() = CheckConnection(status, session->address());
  if (!status.ok()) return all;
  *all.add_findings() = CheckVersions(kVersion, server.version());
  UnaryContext context(session->interrupt(), kDiagnosisDeadline);
  v1::Diagnosis diagnosis;
  const absl::Time sent = session->environment().now();
  const grpc::Status looked = session->system().Diagnose(
      context.get(), v1::DiagnoseRequest(), &diagnosis);
  const absl::Time received = session->environment().now();
  if (!looked.ok()) {
    *all.add_findings() = CheckDiagnosis(looked);
    return all;
  }
  *all.add_findings() = CheckClocks(sent, received, TimeOf(diagnosis.time()));
  all.mutable_findings()->MergeFrom(diagnosis.findings());
  all.set_version(diagnosis.version());
  *all.mutable_time() = diagnosis.time();
  return all;
}

ExitCode DoctorCommand::Run(const std::vector<std::string>&, Session* session) {
  const v1::Diagnosis diagnosis = Look(session);
  if (session->interrupt()->requested()) return ExitCode::kDetached;
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << DiagnosisText(diagnosis);
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(MessageJson(diagnosis), 2) << "\n";
      break;
    case OutputFormat::kName:
      for (const v1::Finding& finding : diagnosis.findings()) {
        session->out() << VisibleLine(finding.name()) << "\n";
      }
      break;
  }
  return HasProblem(diagnosis) ? ExitCode::kError : ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeDoctorCommand() {
  return std::make_unique<DoctorCommand>();
}

}  // namespace roundhouse::client
