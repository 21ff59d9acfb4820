#include "client/follow.h"

#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/visible_text.h"
#include "client/interrupt.h"

namespace roundhouse::client {
namespace {

// `seen`: the server has shown the job, so it is there.
void ShowHowToComeBack(Session* session, const std::string& name, bool seen) {
  const std::string job = ShortName(name);
  session->err() << (seen ? "The job goes on without this client.  " : "")
                 << "Come back with: " << session->CommandLine("watch " + job)
                 << "\n"
                 << "Stop it with: " << session->CommandLine("cancel " + job)
                 << "\n";
}

// Whether a log is one line that ends with what FinalText says already.
bool IsReason(const std::string& log, const v1::FineTuningJob& job) {
  const absl::string_view line = absl::StripSuffix(log, "\n");
  return !job.message().empty() && !absl::StrContains(line, '\n') &&
         absl::EndsWith(line, VisibleLine(ReasonText(job)));
}

void ShowLogTail(Session* session, const v1::FineTuningJob& job) {
  v1::StreamFineTuningJobLogsRequest request;
  request.set_name(job.name());
  request.set_tail_lines(kFailedLogLines);
  UnaryContext context(session->interrupt());
  const auto reader =
      session->jobs().StreamFineTuningJobLogs(context.get(), request);
  std::string tail;
  v1::StreamFineTuningJobLogsResponse message;
  while (reader->Read(&message)) {
    tail += message.data();
  }
  const grpc::Status status = reader->Finish();
  if (!tail.empty() && !IsReason(tail, job)) {
    session->err() << "The end of its log:\n"
                   << VisibleText(tail) << (tail.back() == '\n' ? "" : "\n");
  }
  if (!status.ok()) {
    session->Fail("read the log of " + ShortName(job.name()), status);
  }
}

// It had ended when somebody deleted it.
ExitCode ReportDeleted(Session* session, const v1::FineTuningJob& last) {
  session->err() << VisibleLine(ShortName(last.name())) << " ended "
                 << v1::JobState_Name(last.state()) << " and was deleted\n";
  return ExitCodeForState(last.state());
}

// The whole job, whose histories the watch left out; it was seen as `last`.
ExitCode ReportEnd(Session* session, const std::string& name,
                   const v1::FineTuningJob& last, v1::FineTuningJob* ended) {
  v1::GetFineTuningJobRequest request;
  request.set_name(name);
  v1::FineTuningJob job;
  UnaryContext context(session->interrupt());
  const grpc::Status status =
      session->jobs().GetFineTuningJob(context.get(), request, &job);
  const bool gone = status.error_code() == grpc::StatusCode::NOT_FOUND;
  if (gone && IsFinal(last.state())) {
    return ReportDeleted(session, last);
  }
  if (!status.ok()) {
    return session->Fail("get " + ShortName(name), status);
  }
  if (!IsFinal(job.state())) {
    return session->Fail(
        "get " + ShortName(name),
        grpc::Status(grpc::StatusCode::INTERNAL,
                     absl::StrCat("the watch showed its end, now it is ",
                                  v1::JobState_Name(job.state()))));
  }
  session->err() << FinalText(job);
  if (job.state() == v1::FAILED) {
    ShowLogTail(session, job);
  }
  if (ended != nullptr) {
    *ended = job;
  }
  return ExitCodeForState(job.state());
}

}  // namespace

ExitCode FollowJob(Session* session, const std::string& name,
                   ProgressPrinter printer, const WatchCallback& on_message,
                   v1::FineTuningJob* ended) {
  v1::WatchFineTuningJobsRequest request;
  request.set_name(name);
  request.set_until_final(true);
  const Environment& environment = session->environment();
  bool seen = false, removed = false;
  v1::FineTuningJob last;
  const grpc::Status status = WatchJobs(
      &session->jobs(), request, session->Streams(&printer),
      [&](const v1::WatchFineTuningJobsResponse& message) {
        if (!message.has_job()) {
          return true;
        }
        seen = true;
        last = message.job();
        removed = message.kind() == v1::WatchFineTuningJobsResponse::REMOVED;
        if (removed && IsFinal(last.state())) return false;
        const absl::Time now = environment.now();
        on_message(message);
        printer.Update(ProgressOf(message.job(), now), now);
        return !IsFinal(message.job().state());
      });
  printer.Finish();
  if (status.ok()) {
    return removed ? ReportDeleted(session, last)
                   : ReportEnd(session, name, last, ended);
  }
  const ExitCode code = session->Fail("watch " + ShortName(name), status);
  if (code == ExitCode::kDetached || code == ExitCode::kUnavailable) {
    ShowHowToComeBack(session, name, seen);
  }
  return code;
}

}  // namespace roundhouse::client
