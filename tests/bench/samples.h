// What a daemon's --sample-log (server/observe/timing_log.h) says about the
// steps in it.  Pure.
#ifndef ROUNDHOUSE_TESTS_BENCH_SAMPLES_H_
#define ROUNDHOUSE_TESTS_BENCH_SAMPLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace roundhouse::bench {

// Shares of the wall time between two steps.  compute + wait + idle = 1; the
// links work beside them.
struct DeviceShares {
  double compute = 0;  // the compute thread at work (or without a core)
  double wait = 0;     // it had a slot, but not that slot's inputs
  double idle = 0;     // it had no slot that could start
  double h2d = 0;      // link busy
  double d2h = 0;
};

// Times for one micro-batch, the mean of all slots; 0 where no slot ran the
// pass.
struct LayerTimes {
  double forward_ns = 0;   // recomputed ones too; 0 of a head that trains
  double backward_ns = 0;  // of the head with its forward pass
};

struct StepSamples {
  int64_t steps = 0;
  int64_t begin_ns = 0;  // CLOCK_MONOTONIC
  int64_t end_ns = 0;
  double step_seconds = 0;  // mean
  std::vector<double> dispatch_seconds;
  std::vector<DeviceShares> devices;
  std::vector<LayerTimes> layers;
  double host_busy = 0;  // share of wall time with a host operation under way
};

// From the end of step `first` to the end of step `last`.  INVALID_ARGUMENT
// naming the line that is not a sample; NOT_FOUND when a step is missing or no
// slot lies between them.  Devices are numbered from 0 without gaps.
absl::StatusOr<StepSamples> ReadSamples(const std::string& text, int64_t first,
                                        int64_t last);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_SAMPLES_H_
