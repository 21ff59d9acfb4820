#include "server/gpu/gpu_events.h"

#include <signal.h>
#include <sys/wait.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/wire/exit_status.h"

namespace roundhouse {

GpuEvents::GpuEvents(EventLoop& loop, std::string program, OnEvent on_event,
                     absl::Duration restart_delay)
    : loop_(loop),
      program_(std::move(program)),
      on_event_(std::move(on_event)),
      restart_delay_(restart_delay) {
  Start();
}

GpuEvents::~GpuEvents() { loop_.CancelTimer(timer_); }

void GpuEvents::Start() {
  line_.clear();
  watching_ = false;
  ChildOptions child;
  child.program = program_;
  child.arguments = {"--watch"};
  child.capture_stdout = true;
  auto process = ChildProcess::Start(
      loop_, child, [this](int status) { OnExit(status); },
      [this](const std::string& text) { OnOutput(text); });
  if (process.ok()) {
    child_ = *std::move(process);
  } else {
    StartLater(std::string(process.status().message()));
  }
}

void GpuEvents::OnOutput(const std::string& text) {
  for (const char c : text) {
    if (c == '\n') {
      OnLine(std::exchange(line_, ""));
    } else if (line_.size() <= wire::kMaxGpuEventBytes) {
      line_ += c;  // one that is too long is none: OnLine says so
    }
  }
}

void GpuEvents::OnLine(const std::string& line) {
  if (!watching_) {
    if (line != wire::kGpuEventsBegin) return child_->Kill(SIGKILL);
    watching_ = true;
    warned_ = false;
    return;
  }
  const absl::StatusOr<wire::GpuEvent> event = wire::DecodeGpuEvent(line);
  if (event.ok()) {
    on_event_(*event);
  } else {
    RH_LOG(kError) << event.status().message();
    child_->Kill(SIGKILL);
  }
}

void GpuEvents::OnExit(int wait_status) {
  const std::string words = child_->stderr_tail();
  child_.reset();
  const std::string why = absl::StrCat(
      "the GPU probe that watches ", DescribeExit(wait_status),
      words.empty() ? "" : ": ", words.substr(0, words.find('\n')));
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == wire::kUnableExit) {
    RH_LOG(kWarning) << "Xid errors are not seen: " << why;
    return;
  }
  StartLater(why);
}

void GpuEvents::StartLater(const std::string& why) {
  if (!std::exchange(warned_, true)) {
    RH_LOG(kWarning) << "Xid errors are not seen for "
                     << absl::FormatDuration(restart_delay_) << ": " << why;
  }
  timer_ = loop_.After(restart_delay_, [this] { Start(); });
}

}  // namespace roundhouse
