// Hears of the GPUs' Xid errors as the driver reports them: keeps
// `roundhouse-gpu-probe --watch` (worker/probe) running, a child, since any
// call of NVML may never return.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_GPU_GPU_EVENTS_H_
#define ROUNDHOUSE_SERVER_GPU_GPU_EVENTS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/wire/gpu_event.h"
#include "server/loop/event_loop.h"
#include "server/workers/child_process.h"

namespace roundhouse {

class GpuEvents {
 public:
  using OnEvent = std::function<void(const wire::GpuEvent&)>;

  // Starts at once.  A program that ends is started again after
  // `restart_delay`, and what happened in between is not known; one that is not
  // able to watch (wire::kUnableExit) is not.  Either is said in the log, once
  // until it has watched again.
  GpuEvents(EventLoop& loop, std::string program, OnEvent on_event,
            absl::Duration restart_delay = absl::Seconds(30));
  ~GpuEvents();
  GpuEvents(const GpuEvents&) = delete;
  GpuEvents& operator=(const GpuEvents&) = delete;

 private:
  void Start();
  void OnOutput(const std::string& text);
  void OnLine(const std::string& line);
  void OnExit(int wait_status);
  void StartLater(const std::string& why);

  EventLoop& loop_;
  const std::string program_;
  const OnEvent on_event_;
  const absl::Duration restart_delay_;
  std::unique_ptr<ChildProcess> child_;
  std::string line_;  // that is not whole yet
  bool watching_ = false;
  bool warned_ = false;  // since it has watched
  EventLoop::TimerId timer_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_GPU_GPU_EVENTS_H_
