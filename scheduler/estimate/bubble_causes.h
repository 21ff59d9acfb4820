// Why devices idle in a simulated step: every gap belongs to the input of what
// runs next that arrived last, as in the daemon's metrics.
//
// Pure function; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_ESTIMATE_BUBBLE_CAUSES_H_
#define ROUNDHOUSE_SCHEDULER_ESTIMATE_BUBBLE_CAUSES_H_

#include <cstdint>
#include <vector>

#include "scheduler/simulate/schedule.h"

namespace roundhouse {

// Device time without compute.
struct BubbleCauses {
  // For an activation, or its gradient, that another slot makes: the pipeline
  // fills, or drains, or a slot is late.
  int64_t fill_and_drain_ns = 0;
  int64_t weights_ns = 0;      // for weights on their way up
  int64_t gradients_ns = 0;    // for room: sums of an earlier slot go down
  int64_t end_of_step_ns = 0;  // the last gradients down, reduced, the update

  int64_t total_ns() const {
    return fill_and_drain_ns + weights_ns + gradients_ns + end_of_step_ns;
  }
  void Add(const BubbleCauses& other);

  friend bool operator==(const BubbleCauses&, const BubbleCauses&) = default;
};

struct DeviceStepTime {
  int64_t compute_ns = 0;
  BubbleCauses bubble;  // with compute_ns the schedule's makespan
};

// By device.  REQUIRES: a schedule of transfers (SimulateStep).
std::vector<DeviceStepTime> ExplainBubbles(const Schedule& schedule);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_ESTIMATE_BUBBLE_CAUSES_H_
