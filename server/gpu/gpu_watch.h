// Hears what the probe (worker/probe) says of the GPUs line by line: keeps
// `roundhouse-gpu-probe` running with one of its arguments, a child, since any
// call of NVML may never return.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_GPU_GPU_WATCH_H_
#define ROUNDHOUSE_SERVER_GPU_GPU_WATCH_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/loop/event_loop.h"
#include "server/workers/child_process.h"

namespace roundhouse {

struct GpuWatchOptions {
  std::string program;
  std::string argument;       // "--watch"
  std::string begin;          // the first line
  size_t max_line_bytes = 0;  // of those after it
  std::string what;           // is heard: "Xid errors", for the log
  // A program that ends is started again after that, and what happened in
  // between is not known.
  absl::Duration restart_delay = absl::Seconds(30);
};

class GpuWatch {
 public:
  // Not OK: it is no such line, and the program is killed.
  using OnLine = std::function<absl::Status(const std::string&)>;

  // Starts at once.  A program that is not able to watch (wire::kUnableExit) is
  // not started again.  That, and that one has ended, is said in the log, once
  // until it has watched again.
  GpuWatch(EventLoop& loop, GpuWatchOptions options, OnLine on_line);
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

 private:
  void Start();
  void OnOutput(const std::string& text);
  void TakeLine(const std::string& line);
  void OnExit(int wait_status);
  void StartLater(const std::string& why);

  EventLoop& loop_;
  const GpuWatchOptions options_;
  const OnLine on_line_;
  std::unique_ptr<ChildProcess> child_;
  std::string line_;  // that is not whole yet
  bool watching_ = false;
  bool warned_ = false;  // since it has watched
  EventLoop::TimerId timer_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_GPU_GPU_WATCH_H_
