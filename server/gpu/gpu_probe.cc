#include "server/gpu/gpu_probe.h"

#include <signal.h>
#include <sys/wait.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/wire/exit_status.h"

namespace roundhouse {

GpuProbe::GpuProbe(EventLoop& loop, GpuProbeOptions options)
    : loop_(loop), options_(std::move(options)) {}

GpuProbe::~GpuProbe() { loop_.CancelTimer(timer_); }

void GpuProbe::Start(Done done) {
  done_ = std::move(done);
  absl::Status begun;
  if (child_ != nullptr) {
    begun = absl::UnavailableError(
        "the last GPU probe was killed and has not "
        "ended: a call of the driver hangs");
  } else {
    output_.clear();
    ChildOptions child;
    child.program = options_.program;
    child.capture_stdout = true;
    auto process = ChildProcess::Start(
        loop_, child, [this](int status) { OnExit(status); },
        [this](const std::string& text) { OnOutput(text); });
    begun = process.status();
    if (process.ok()) child_ = *std::move(process);
  }
  timer_ = begun.ok() ? loop_.After(options_.deadline, [this] { OnDeadline(); })
                      : loop_.After(absl::ZeroDuration(),
                                    [this, begun] { Finish(begun); });
}

void GpuProbe::Finish(absl::StatusOr<wire::GpuReport> report) {
  loop_.CancelTimer(timer_);
  // The owner may start the next one in the call.
  if (done_) std::exchange(done_, nullptr)(std::move(report));
}

void GpuProbe::OnOutput(const std::string& text) {
  output_ += text;
  if (output_.size() > wire::kMaxGpuReportBytes) {
    output_.resize(wire::kMaxGpuReportBytes + 1);  // which no report is
    child_->Kill(SIGKILL);
  }
}

void GpuProbe::OnDeadline() {
  child_->Kill(SIGKILL);
  Finish(absl::DeadlineExceededError(WithLastLine(
      absl::StrCat("no report of the GPU probe within ",
                   absl::FormatDuration(options_.deadline),
                   ": killed (a call of the NVIDIA driver hangs)"))));
}

void GpuProbe::OnExit(int wait_status) {
  const int status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
  absl::StatusOr<wire::GpuReport> report = wire::DecodeGpuReport(output_);
  if (status != 0 && output_.size() <= wire::kMaxGpuReportBytes) {
    report = absl::Status(status == wire::kUnableExit
                              ? absl::StatusCode::kFailedPrecondition
                              : absl::StatusCode::kInternal,
                          WithLastLine(absl::StrCat(
                              "the GPU probe ", DescribeExit(wait_status))));
  } else if (!report.ok()) {
    report = absl::InternalError(report.status().message());
  }
  child_.reset();
  Finish(std::move(report));
}

std::string GpuProbe::WithLastLine(const std::string& what) const {
  const absl::string_view tail =
      absl::StripAsciiWhitespace(child_->stderr_tail());
  const absl::string_view line = tail.substr(tail.rfind('\n') + 1);
  return line.empty() ? what : absl::StrCat(what, ": ", line);
}

absl::StatusOr<wire::GpuReport> ProbeGpusNow(const GpuProbeOptions& options) {
  ASSIGN_OR_RETURN(const auto loop, EventLoop::Create());
  absl::StatusOr<wire::GpuReport> report = absl::InternalError("no answer");
  GpuProbe probe(*loop, options);
  probe.Start([&](absl::StatusOr<wire::GpuReport> answer) {
    report = std::move(answer);
    loop->Quit();
  });
  loop->Run();
  return report;
}

}  // namespace roundhouse
