#include "scheduler/estimate/bubble_causes.h"

#include <algorithm>
#include <map>
#include <utility>

namespace roundhouse {
namespace {

using Cause = int64_t BubbleCauses::*;

// What happens on one device's compute stream and links.
struct DeviceEvents {
  std::vector<const Interval*> compute;
  std::map<int64_t, Cause> arrivals;  // by end
};

Cause CauseOf(const Interval& interval) {
  switch (interval.kind) {
    case WorkKind::kWeights:
      return &BubbleCauses::weights_ns;
    case WorkKind::kGradients:
      return &BubbleCauses::gradients_ns;
    default:
      return &BubbleCauses::fill_and_drain_ns;
  }
}

// Two things may arrive at once: an upload is what compute starts for; room
// for sums is there when their download ends.
bool IsArrival(const Interval& interval) {
  const bool up = interval.resource.type == ResourceType::kH2d;
  return up || (interval.resource.type == ResourceType::kD2h &&
                interval.kind == WorkKind::kGradients);
}

std::vector<DeviceEvents> EventsOf(const Schedule& schedule) {
  std::vector<DeviceEvents> events(schedule.device_count);
  for (const Interval& interval : schedule.intervals) {
    if (interval.resource.type == ResourceType::kHost) continue;
    DeviceEvents& device = events[interval.resource.index];
    if (IsCompute(interval.kind)) {
      device.compute.push_back(&interval);
    } else if (IsArrival(interval)) {
      const bool up = interval.resource.type == ResourceType::kH2d;
      const auto [at, added] =
          device.arrivals.emplace(interval.end_ns, CauseOf(interval));
      if (!added && up) at->second = CauseOf(interval);
    }
  }
  for (DeviceEvents& device : events) {
    std::sort(device.compute.begin(), device.compute.end(),
              [](const Interval* a, const Interval* b) {
                return std::pair(a->start_ns, a->end_ns) <
                       std::pair(b->start_ns, b->end_ns);
              });
  }
  return events;
}

// The last arrival at or before `time`.
Cause LastArrival(const DeviceEvents& device, int64_t time) {
  const auto after = device.arrivals.upper_bound(time);
  if (after == device.arrivals.begin()) return &BubbleCauses::fill_and_drain_ns;
  return std::prev(after)->second;
}

}  // namespace

void BubbleCauses::Add(const BubbleCauses& other) {
  fill_and_drain_ns += other.fill_and_drain_ns;
  weights_ns += other.weights_ns;
  gradients_ns += other.gradients_ns;
  end_of_step_ns += other.end_of_step_ns;
}

std::vector<DeviceStepTime> ExplainBubbles(const Schedule& schedule) {
  const std::vector<DeviceEvents> events = EventsOf(schedule);
  int64_t last_compute_ns = 0;
  for (const DeviceEvents& device : events) {
    if (device.compute.empty()) continue;
    last_compute_ns = std::max(last_compute_ns, device.compute.back()->end_ns);
  }
  const int64_t makespan_ns = schedule.MakespanNs();
  std::vector<DeviceStepTime> times;
  for (const DeviceEvents& device : events) {
    DeviceStepTime time;
    int64_t end_ns = 0;
    for (const Interval* interval : device.compute) {
      const int64_t gap_ns = interval->start_ns - end_ns;
      if (gap_ns > 0) {
        time.bubble.*LastArrival(device, interval->start_ns) += gap_ns;
      }
      time.compute_ns += interval->length_ns();
      end_ns = interval->end_ns;
    }
    time.bubble.fill_and_drain_ns += last_compute_ns - end_ns;
    time.bubble.end_of_step_ns += makespan_ns - last_compute_ns;
    times.push_back(time);
  }
  return times;
}

}  // namespace roundhouse
