// Runs the GPU probe (worker/probe) as a child with a deadline: NVML may never
// answer, and nothing of the daemon may wait for it.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_GPU_GPU_PROBE_H_
#define ROUNDHOUSE_SERVER_GPU_GPU_PROBE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/wire/gpu_report.h"
#include "server/loop/event_loop.h"
#include "server/workers/child_process.h"

namespace roundhouse {

struct GpuProbeOptions {
  std::string program;  // roundhouse-gpu-probe
  // Then it is killed.  A driver wakes each GPU for the first question, which
  // for eight that keep no state takes tens of seconds.
  absl::Duration deadline = absl::Seconds(60);
};

class GpuProbe {
 public:
  using Done = std::function<void(absl::StatusOr<wire::GpuReport>)>;

  GpuProbe(EventLoop& loop, GpuProbeOptions options);
  // Kills a probe that runs; no call of a `done` follows.
  ~GpuProbe();

  // Calls `done` once, within the deadline, never from within this call.
  // FAILED_PRECONDITION: the machine has no driver.  DEADLINE_EXCEEDED: no
  // report in time.  INTERNAL: it could not be started, failed, or printed no
  // report; all with the last line of its stderr.  UNAVAILABLE: the last one
  // was killed and has not ended, which a driver can keep it from.
  // REQUIRES: the last Start's `done` was called.
  void Start(Done done);

 private:
  void Finish(absl::StatusOr<wire::GpuReport> report);
  void OnOutput(const std::string& text);
  void OnExit(int wait_status);
  void OnDeadline();
  std::string WithLastLine(const std::string& what) const;

  EventLoop& loop_;
  const GpuProbeOptions options_;
  Done done_;
  std::unique_ptr<ChildProcess> child_;
  std::string output_;
  EventLoop::TimerId timer_ = 0;
};

// One probe on a loop of its own; blocks the calling thread for as long as the
// deadline.  Errors as Start's.
absl::StatusOr<wire::GpuReport> ProbeGpusNow(const GpuProbeOptions& options);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_GPU_GPU_PROBE_H_
