// Every metric of the daemon: one struct for each part of it, names, help texts
// and buckets in one file (metric_families.cc).  docs/metrics.md is checked
// against it.
//
// Thread-safe, as the registry is, which outlives the families.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_METRIC_FAMILIES_H_
#define ROUNDHOUSE_SERVER_OBSERVE_METRIC_FAMILIES_H_

#include <utility>

#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace roundhouse {

using CounterFamily = prometheus::Family<prometheus::Counter>;
using GaugeFamily = prometheus::Family<prometheus::Gauge>;

// A histogram's series all have the same buckets.
class HistogramFamily {
 public:
  HistogramFamily(prometheus::Family<prometheus::Histogram>& family,
                  prometheus::Histogram::BucketBoundaries bounds)
      : family_(family), bounds_(std::move(bounds)) {}
  prometheus::Histogram& Add(const prometheus::Labels& labels) {
    return family_.Add(labels, bounds_);
  }

 private:
  prometheus::Family<prometheus::Histogram>& family_;
  const prometheus::Histogram::BucketBoundaries bounds_;  // seconds
};

struct DeviceFamilies {
  explicit DeviceFamilies(prometheus::Registry& registry);
  CounterFamily& time;
  CounterFamily& bubbles;
  CounterFamily& filled_bubbles;
  GaugeFamily& bubble_ratio;
  GaugeFamily& up;
  GaugeFamily& out_of_use;
  GaugeFamily& memory;
  GaugeFamily& pinned;
};

// What NVML says of CUDA devices.
struct GpuFamilies {
  explicit GpuFamilies(prometheus::Registry& registry);
  GaugeFamily& lost;
  GaugeFamily& temperature;
  GaugeFamily& power;
  GaugeFamily& power_limit;
  GaugeFamily& sm_clock;
  GaugeFamily& utilization;
  GaugeFamily& memory;
  GaugeFamily& link_bytes;
  GaugeFamily& link_info;
  GaugeFamily& link_ratio;
  CounterFamily& replays;
  CounterFamily& xid_errors;
  CounterFamily& probe_failures;
};

struct LinkFamilies {
  explicit LinkFamilies(prometheus::Registry& registry);
  CounterFamily& bytes;
  CounterFamily& busy;
  GaugeFamily& utilization;
  GaugeFamily& rate;
};

struct SlotFamilies {
  explicit SlotFamilies(prometheus::Registry& registry);
  CounterFamily& slots;
  HistogramFamily duration;
  CounterFamily& sum_exchanges;
  HistogramFamily dispatch_latency;
  HistogramFamily preemption_latency;
  HistogramFamily recovery;
};

struct StepFamilies {
  explicit StepFamilies(prometheus::Registry& registry);
  HistogramFamily step;
  HistogramFamily optimizer;
};

// The label `job` is here only, on all but `jobs` and `queue_wait`.
struct JobFamilies {
  explicit JobFamilies(prometheus::Registry& registry);
  GaugeFamily& loss;
  CounterFamily& steps;
  CounterFamily& tokens;
  GaugeFamily& loss_scale;
  CounterFamily& skipped;
  // With a label `layer` besides.
  GaugeFamily& expert_max;
  GaugeFamily& expert_entropy;
  GaugeFamily& experts_unhit;
  GaugeFamily& eta;
  GaugeFamily& share;
  GaugeFamily& info;
  GaugeFamily& jobs;
  HistogramFamily queue_wait;
};

// The label `user` is here, and on `info` above.
struct UserFamilies {
  explicit UserFamilies(prometheus::Registry& registry);
  CounterFamily& service;
  GaugeFamily& lag;
  GaugeFamily& jobs;
};

struct StorageFamilies {
  explicit StorageFamilies(prometheus::Registry& registry);
  GaugeFamily& arena;
  GaugeFamily& arena_limit;
  GaugeFamily& disk_free;
  HistogramFamily checkpoint;
  CounterFamily& checkpoint_failures;
  HistogramFamily commit;
};

struct CallFamilies {
  explicit CallFamilies(prometheus::Registry& registry);
  HistogramFamily turn;
  CounterFamily& handled;
  HistogramFamily handling;
  CounterFamily& lost_audit_rows;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_METRIC_FAMILIES_H_
