// A schedule in virtual time: who did what, from when to when.  What every
// simulator here returns, what the checker reads and what
// `bubble_table --dump` writes.
//
// Time is whole nanoseconds from the schedule's start: intervals that touch
// then have equal ends exactly, ties are decided alike on every machine, and
// the dump's milliseconds with six digits are the whole truth.
//
// Pure values and functions; thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_SCHEDULE_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/work_kinds.h"

namespace roundhouse {

enum class ResourceType {
  kCompute,  // a device's compute stream
  kH2d,      // a device's link, host to device
  kD2h,      // and back
  kHost,     // host threads; the index is a HostThreads
};

enum class HostThreads { kReduce, kOptimizer };

struct Resource {
  ResourceType type = ResourceType::kCompute;
  int index = 0;  // the device, or the host threads

  friend auto operator<=>(const Resource&, const Resource&) = default;
};

enum class WorkKind {
  // Compute.
  kForward,
  kRecompute,
  kBackward,  // without the recompute
  kHeadForward,
  kHeadBackward,
  kFused,  // forward and backward of layers and head, one after the other
  // Links.
  kWeights,
  kGradients,    // of weights, one contribution
  kActivations,  // at a boundary, or their gradients
  // Host.
  kReduce,
  kOptimizer,
};
bool IsCompute(WorkKind kind);

// How a simulated device computes a micro-batch of a fused slot.
enum class FusedSlots {
  // At one go, kFused, when all of the slot's weights are there; its sums are
  // complete with the last one.
  kWhole,
  // As workers do: a micro-batch goes forward as far as weights are there and
  // needs room for sums only then, and of the last one each layer's sums are
  // complete with its backward.  Where none of that matters it is one kFused,
  // which a backfill part does not cut, else kForward, kHeadForward,
  // kHeadBackward and kBackward, and nothing of the job in between.
  kByLayer,
};

inline constexpr int kNoMicroBatch = -1;

struct Interval {
  Resource resource;
  WorkKind kind = WorkKind::kForward;
  int job = 0;
  int step = 0;
  // The direction of the interval's slot.  For activations: kForward for a
  // layer's input, kAgain for one that is written again, kBackward for the
  // gradient of that input.
  PassDirection direction = PassDirection::kForward;
  // layer_end is exclusive.  Of activations both are the layer whose input it
  // is.  Head kinds: L and L + 1.
  int layer_begin = 0;
  int layer_end = 0;
  int micro_batch = kNoMicroBatch;  // of the step
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t bytes = 0;  // moved; 0 for compute
  // The run of its part, counted on a device over all of a schedule by the step
  // simulator; 0 elsewhere.
  int attempt = 0;
  // True if the run was given up: the part's device was lost, or it was
  // withdrawn.
  bool lost = false;

  int64_t length_ns() const { return end_ns - start_ns; }
};

// What a simulation keeps of them; its times are the same.
enum class Intervals {
  kByRate,  // those of transfers split where their rates change: each has one
  kWhole,   // an interval has its mean rate
  kNone,    // ends alone (Schedule::end_ns, computed_ns)
};

struct Schedule {
  int device_count = 0;
  std::vector<Interval> intervals;  // in no particular order
  // With several jobs: the time until the first of them ended. Per device,
  // the part of it without compute while the device had what some part needs
  // to begin.
  int64_t shared_ns = 0;
  std::vector<int64_t> ready_idle_ns;
  // For a simulated step or steps without losses, even where no intervals are
  // kept: MakespanNs, and the end of the last compute of each round of the
  // first job, over all steps.
  int64_t end_ns = 0;
  std::vector<int64_t> computed_ns;
  // If the simulation was given up (StepOptions::give_up_ns), the share of its
  // compute that is missing.
  double missing = 0;

  // The latest end of an interval of more than no length; 0 without any.
  int64_t MakespanNs() const;
  // Compute over all devices.
  int64_t BusyNs() const;
  // The share of device time without compute, in per cent; 0 for an empty
  // schedule.
  double BubblePercent() const;
};

// "compute:3", "h2d:0", "host:reduce".
std::string ResourceName(const Resource& resource);
absl::string_view WorkKindName(WorkKind kind);
absl::string_view PassDirectionName(PassDirection direction);

// One line naming the interval, for messages.
std::string ToString(const Interval& interval);

// By resource, then time.  Columns resource, kind, job, step, direction,
// layer_begin, layer_end, micro_batch (-1: none), start_ms, end_ms, bytes.
std::string ScheduleCsv(const Schedule& schedule);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_SCHEDULE_H_
