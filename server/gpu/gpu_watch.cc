#include "server/gpu/gpu_watch.h"

#include <signal.h>
#include <sys/wait.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/wire/exit_status.h"

namespace roundhouse {

GpuWatch::GpuWatch(EventLoop& loop, GpuWatchOptions options, OnLine on_line)
    : loop_(loop), options_(std::move(options)), on_line_(std::move(on_line)) {
  Start();
}

GpuWatch::~GpuWatch() { loop_.CancelTimer(timer_); }

void GpuWatch::Start() {
  line_.clear();
  watching_ = false;
  ChildOptions child;
  child.program = options_.program;
  child.arguments = {options_.argument};
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

void GpuWatch::OnOutput(const std::string& text) {
  for (const char c : text) {
    if (c == '\n') {
      TakeLine(std::exchange(line_, ""));
    } else if (line_.size() <= options_.max_line_bytes) {
      line_ += c;  // one that is too long is none: on_line_ says so
    }
  }
}

void GpuWatch::TakeLine(const std::string& line) {
  if (!watching_) {
    if (line != options_.begin) return child_->Kill(SIGKILL);
    watching_ = true;
    warned_ = false;
    return;
  }
  const absl::Status taken = on_line_(line);
  if (taken.ok()) return;
  RH_LOG(kError) << taken.message();
  child_->Kill(SIGKILL);
}

void GpuWatch::OnExit(int wait_status) {
  const std::string words = child_->stderr_tail();
  child_.reset();
  const std::string why = absl::StrCat(
      "the GPU probe that watches ", DescribeExit(wait_status),
      words.empty() ? "" : ": ", words.substr(0, words.find('\n')));
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == wire::kUnableExit) {
    RH_LOG(kWarning) << options_.what << " are not seen: " << why;
    return;
  }
  StartLater(why);
}

void GpuWatch::StartLater(const std::string& why) {
  if (!std::exchange(warned_, true)) {
    RH_LOG(kWarning) << options_.what << " are not seen for "
                     << absl::FormatDuration(options_.restart_delay) << ": "
                     << why;
  }
  timer_ = loop_.After(options_.restart_delay, [this] { Start(); });
}

}  // namespace roundhouse
