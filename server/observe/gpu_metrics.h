// Keeps the series of the GPUs (gpu_series.h) fresh: has them probed every few
// seconds.  A probe that fails or hangs leaves no old values behind.
//
// Runs on the event loop's thread and never blocks it.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_GPU_METRICS_H_
#define ROUNDHOUSE_SERVER_OBSERVE_GPU_METRICS_H_

#include <vector>

#include "absl/time/time.h"
#include "base/wire/gpu_report.h"
#include "server/observe/gpu_series.h"
#include "server/pool/event_loop.h"
#include "server/pool/gpu_probe.h"

namespace roundhouse {

class GpuMetrics {
 public:
  // `gpus` of device 0, 1 ... as they were found last; without any it does
  // nothing.  `interval`: from the end of a probe to the next.  The references
  // outlive it.
  GpuMetrics(EventLoop& loop, const GpuProbeOptions& probe,
             std::vector<wire::Gpu> gpus, GpuSeries& series,
             absl::Duration interval = absl::Seconds(15));
  ~GpuMetrics();
  GpuMetrics(const GpuMetrics&) = delete;
  GpuMetrics& operator=(const GpuMetrics&) = delete;

 private:
  void Later();
  void OnReport(const absl::StatusOr<wire::GpuReport>& report);
  void Show(int device, const wire::GpuReport& report);

  EventLoop& loop_;
  GpuProbe probe_;
  std::vector<wire::Gpu> gpus_;
  GpuSeries& series_;
  const absl::Duration interval_;
  EventLoop::TimerId timer_ = 0;
  bool failed_ = false;  // the last probe
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_GPU_METRICS_H_
