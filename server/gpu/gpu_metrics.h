// Keeps the series of the GPUs (gpu_series.h) fresh: has them probed every few
// seconds, and hears of Xid errors (server/gpu/gpu_events.h) as they happen.
// A probe that fails or hangs leaves no old values behind.
//
// Runs on the event loop's thread and never blocks it.
#ifndef ROUNDHOUSE_SERVER_GPU_GPU_METRICS_H_
#define ROUNDHOUSE_SERVER_GPU_GPU_METRICS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/wire/gpu_event.h"
#include "base/wire/gpu_report.h"
#include "server/gpu/gpu_events.h"
#include "server/gpu/gpu_probe.h"
#include "server/loop/event_loop.h"
#include "server/observe/gpu_series.h"

namespace roundhouse {

class GpuMetrics {
 public:
  // The device's GPU does not work any more, `what` for a log: told of each
  // probe that finds a fault, and of each Xid error that says so.  What
  // programs cause, these or others on the GPU, their own calls tell them.
  using OnTrouble = std::function<void(int device, const std::string& what)>;

  // `gpus` of device 0, 1 ... as they were found last; without any it does
  // nothing.  `interval`: from the end of a probe to the next.  The references
  // outlive it.
  GpuMetrics(EventLoop& loop, const GpuProbeOptions& probe,
             std::vector<wire::Gpu> gpus, GpuSeries& series,
             OnTrouble on_trouble, absl::Duration interval = absl::Seconds(15));
  ~GpuMetrics();
  GpuMetrics(const GpuMetrics&) = delete;
  GpuMetrics& operator=(const GpuMetrics&) = delete;

 private:
  void Later();
  void OnReport(const absl::StatusOr<wire::GpuReport>& report);
  void Show(int device, const wire::GpuReport& report);
  void OnXid(const wire::GpuEvent& event);
  void ReportTrouble(int device, const std::string& what) const;

  EventLoop& loop_;
  GpuProbe probe_;
  std::vector<wire::Gpu> gpus_;
  GpuSeries& series_;
  const OnTrouble on_trouble_;
  const absl::Duration interval_;
  std::optional<GpuEvents> events_;
  EventLoop::TimerId timer_ = 0;
  bool failed_ = false;  // the last probe
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_GPU_GPU_METRICS_H_
