#include "client/commands/watch.h"

#include <ostream>

#include "base/visible_text.h"
#include "client/follow.h"
#include "client/interrupt.h"
#include "client/tables/message_json.h"

namespace roundhouse::client {
namespace {

void ShowJsonLine(const v1::FineTuningJob& job, Session* session) {
  session->out() << JsonText(BriefJobJson(job), -1) << "\n" << std::flush;
}

void ShowRemoved(const v1::FineTuningJob& job, Session* session) {
  if (session->format() == OutputFormat::kJson) {
    nlohmann::ordered_json json = BriefJobJson(job);
    json["removed"] = true;
    session->out() << JsonText(json, -1);
  } else if (session->format() == OutputFormat::kName) {
    session->out() << VisibleLine(job.name());
  } else {
    session->out() << VisibleLine(ShortName(job.name())) << " was deleted";
  }
  session->out() << "\n" << std::flush;
}

class WatchCommand : public Command {
 public:
  const CommandInfo& info() const override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  static ExitCode WatchOne(const std::string& name, Session* session);
  static ExitCode WatchAll(Session* session);
};

const CommandInfo& WatchCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "watch",
      "[JOB]",
      "progress of one job, or the changes of all",
      "With JOB: until it ends; the exit code says how.  A line that redraws "
      "itself on\na terminal, plain lines elsewhere, one JSON object a line "
      "with -o json.\nWithout: a line for each change of any job, until "
      "Ctrl-C.",
      0,
      1};
  return info;
}

ExitCode WatchCommand::WatchOne(const std::string& name, Session* session) {
  const bool as_table = session->format() == OutputFormat::kTable;
  // What is not the data asked for stays off standard output.
  ProgressPrinter printer =
      as_table ? session->Printer(&session->out(),
                                  session->environment().out_is_terminal)
               : session->Printer(&session->err(),
                                  session->environment().err_is_terminal);
  v1::FineTuningJob ended;
  const ExitCode code = FollowJob(
      session, name, printer,
      [session](const v1::WatchFineTuningJobsResponse& message) {
        if (session->format() == OutputFormat::kJson) {
          ShowJsonLine(message.job(), session);
        }
      },
      &ended);
  if (session->format() == OutputFormat::kName && !ended.name().empty()) {
    session->out() << VisibleLine(ended.name()) << "\n";
  }
  return code;
}

ExitCode WatchCommand::WatchAll(Session* session) {
  ProgressPrinter printer = session->PlainPrinter(&session->err());
  const grpc::Status status = WatchJobs(
      &session->jobs(), v1::WatchFineTuningJobsRequest(),
      session->Streams(&printer),
      [session](const v1::WatchFineTuningJobsResponse& message) {
        const v1::FineTuningJob& job = message.job();
        if (message.kind() == v1::WatchFineTuningJobsResponse::REMOVED) {
          ShowRemoved(job, session);
          return true;
        }
        if (message.kind() != v1::WatchFineTuningJobsResponse::CHANGE) {
          return true;
        }
        if (session->format() == OutputFormat::kJson) {
          ShowJsonLine(job, session);
        } else if (session->format() == OutputFormat::kName) {
          session->out() << VisibleLine(job.name()) << "\n" << std::flush;
        } else {
          const absl::Time now = session->environment().now();
          session->out() << VisibleLine(ShortName(job.name())) << " "
                         << ProgressLine(ProgressOf(job, now)) << "\n"
                         << std::flush;
        }
        return true;
      });
  return session->interrupt()->requested() ? ExitCode::kDetached
                                           : session->Fail("watch", status);
}

ExitCode WatchCommand::Run(const std::vector<std::string>& arguments,
                           Session* session) {
  return arguments.empty() ? WatchAll(session)
                           : WatchOne(arguments[0], session);
}

}  // namespace

std::unique_ptr<Command> MakeWatchCommand() {
  return std::make_unique<WatchCommand>();
}

}  // namespace roundhouse::client
