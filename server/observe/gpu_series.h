// The series of CUDA devices whose source is NVML (docs/metrics.md).
//
// A series is there while its value is known: what a GPU does not say has none,
// and old values are never served.  One thread sets, any thread may scrape.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_GPU_SERIES_H_
#define ROUNDHOUSE_SERVER_OBSERVE_GPU_SERIES_H_

#include <map>
#include <vector>

#include "base/wire/gpu_report.h"
#include "prometheus/registry.h"
#include "server/observe/metric_families.h"

namespace roundhouse {

class GpuSeries {
 public:
  explicit GpuSeries(prometheus::Registry& registry) : families_(registry) {}

  // What was found of the device's GPU; with a fault that alone.
  void Set(int device, const wire::Gpu& gpu);
  // Nothing is known any more.
  void Drop(int device);
  // Also make the counter, with 0.
  void CountProbeFailures(int count);
  void CountXidErrors(int device, int count);

 private:
  struct Series {
    GaugeFamily* family;
    prometheus::Gauge* gauge;
  };
  class Writer;

  void SetReplays(int device, const wire::Gpu::Number& replays);

  GpuFamilies families_;
  std::map<int, std::vector<Series>> gauges_;            // by device
  std::map<int, prometheus::Counter*> replay_counters_;  // by device
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_GPU_SERIES_H_
