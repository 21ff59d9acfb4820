#include "client/commands/trace.h"

#include <cstdint>
#include <ostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/visible_text.h"
#include "client/error_text.h"
#include "client/files.h"
#include "client/interrupt.h"
#include "client/output.h"
#include "client/tables/message_json.h"
#include "client/tables/trace_json.h"
#include "proto/roundhouse/v1/plan.pb.h"

namespace roundhouse::client {
namespace {

constexpr int64_t kMostSteps = 100;

std::string Steps(const v1::TraceFineTuningJobResponse& trace) {
  const int64_t first = trace.first_step();
  const int64_t last = first + trace.steps() - 1;
  return first == last ? absl::StrCat("step ", first)
                       : absl::StrCat("steps ", first, "-", last);
}

std::string Share(int64_t part_ns, const v1::TracedDevice& device) {
  const double span = static_cast<double>(device.end_ns() - device.start_ns());
  return span > 0 ? absl::StrFormat("%.1f%%", 100 * part_ns / span) : "-";
}

std::string DeviceShares(const v1::TraceFineTuningJobResponse& trace) {
  std::vector<std::vector<std::string>> rows = {
      {"DEVICE", "SECONDS", "COMPUTE", "BUBBLE", "IDLE"}};
  for (const v1::TracedDevice& device : trace.devices()) {
    rows.push_back(
        {absl::StrCat(device.index()),
         absl::StrFormat("%.3f", 1e-9 * (device.end_ns() - device.start_ns())),
         Share(device.compute_ns(), device), Share(device.bubble_ns(), device),
         Share(device.idle_ns() + device.fenced_ns(), device)});
  }
  return FormatTable(rows);
}

class TraceCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  grpc::Status Record(const std::string& job, Session* session,
                      v1::TraceFineTuningJobResponse* trace) const;
  absl::Status Write(const v1::TraceFineTuningJobResponse& trace,
                     const std::string& path, Session* session) const;
  void Show(const v1::TraceFineTuningJobResponse& trace,
            const std::string& path, Session* session) const;

  int64_t steps_ = 3;
  std::string output_;
};

const CommandInfo& TraceCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "trace",
      "JOB",
      "a running job's next steps as a timeline for Perfetto",
      "What each device computed, waited for (and why) and copied, and what "
      "the "
      "host did,\nin the next whole steps of a job that runs.  Open the file "
      "at "
      "ui.perfetto.dev; what\n`roundhouse plan --trace` writes has the same "
      "form.\n\nA trace of fewer steps, because the job ended or was paused, "
      "is written all the\nsame.  Ctrl-C ends the recording, and nothing is "
      "written.",
      1,
      1};
  return info;
}

void TraceCommand::DefineFlags(FlagSet* flags) {
  flags->AddInt("steps", 0, "N", 1, &steps_,
                "how many optimizer steps, 3 when not given; 100 at most");
  flags->AddString(
      "output", 0, "FILE", &output_,
      "where to: trace-JOB.json when not given; - is standard output");
}

absl::Status TraceCommand::CheckFlags() {
  if (steps_ <= kMostSteps) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("flag --steps: at most ", kMostSteps));
}

grpc::Status TraceCommand::Record(const std::string& job, Session* session,
                                  v1::TraceFineTuningJobResponse* trace) const {
  v1::TraceFineTuningJobRequest request;
  request.set_name(job);
  request.set_steps(static_cast<int32_t>(steps_));
  // As long as the steps are.
  UnaryContext context(session->interrupt(), absl::InfiniteDuration());
  const auto reader =
      session->jobs().TraceFineTuningJob(context.get(), request);
  const bool terminal = session->environment().err_is_terminal;
  v1::TraceFineTuningJobResponse message;
  while (reader->Read(&message)) {
    trace->MergeFrom(message);
    if (!terminal) continue;
    session->err() << "\r\x1b[K" << message.steps() << " of " << steps_
                   << " steps" << std::flush;
  }
  if (terminal) session->err() << "\r\x1b[K" << std::flush;
  return reader->Finish();
}

absl::Status TraceCommand::Write(const v1::TraceFineTuningJobResponse& trace,
                                 const std::string& path,
                                 Session* session) const {
  v1::TraceFineTuningJobResponse about = trace;
  about.clear_timeline();
  const std::string text = TraceJson(trace.timeline(), MessageJson(about));
  if (path != "-") return WriteTextFile(path, text);
  session->out() << text;
  return absl::OkStatus();
}

void TraceCommand::Show(const v1::TraceFineTuningJobResponse& trace,
                        const std::string& path, Session* session) const {
  if (!trace.ended_early().empty()) {
    session->err() << "roundhouse: trace: " << trace.steps() << " of " << steps_
                   << " steps: " << VisibleLine(trace.ended_early()) << "\n";
  }
  if (trace.copies_left_out() > 0) {
    session->err() << "roundhouse: trace: " << trace.copies_left_out()
                   << " copies of slots with too many are left out\n";
  }
  if (path == "-") return;
  session->err() << "trace of " << Steps(trace) << ": " << VisibleLine(path)
                 << " (for ui.perfetto.dev)\n";
  if (session->format() == OutputFormat::kName) {
    session->out() << VisibleLine(path) << "\n";
    return;
  }
  if (session->format() == OutputFormat::kTable) {
    session->out() << DeviceShares(trace);
    return;
  }
  v1::TraceFineTuningJobResponse about = trace;
  about.clear_timeline();
  session->out() << JsonText(MessageJson(about), 2) << "\n";
}

ExitCode TraceCommand::Run(const std::vector<std::string>& arguments,
                           Session* session) {
  const std::string& job = arguments[0];
  v1::TraceFineTuningJobResponse trace;
  const grpc::Status status = Record(job, session, &trace);
  if (!status.ok()) return session->Fail("trace " + job, status);
  const std::string path = output_.empty()
                               ? absl::StrCat("trace-", ShortName(job), ".json")
                               : output_;
  const absl::Status written = Write(trace, path, session);
  if (!written.ok()) {
    session->err() << "roundhouse: trace: "
                   << MessageText(std::string(written.message())) << "\n";
    return ExitCode::kError;
  }
  Show(trace, path, session);
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeTraceCommand() {
  return std::make_unique<TraceCommand>();
}

}  // namespace roundhouse::client
