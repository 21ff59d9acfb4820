// What a trace of a running job holds, and the recording as whoever asked for
// it sees it.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_TRACE_H_
#define ROUNDHOUSE_SERVER_OBSERVE_TRACE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/observe/device_ledger.h"

namespace roundhouse {

// Optimizer steps of one trace.
inline constexpr int64_t kMaxTracedSteps = 100;
// Some 40 MB.  A recording that comes to more is given up.
inline constexpr size_t kMaxTraceIntervals = 400'000;

// Where an interval is; those of one track (and device) do not overlap.
enum class TraceTrack {
  kCompute,
  kWait,
  kH2D,
  kD2H,
  // The host's tracks: no device.
  kGather,
  kReduce,
  kOptimizer,
  kSteps,
  kBackfill  // of a device: computed in waits of others
};

// Times are CLOCK_MONOTONIC nanoseconds.
struct TraceInterval {
  TraceTrack track = TraceTrack::kCompute;
  int device = 0;
  absl::string_view kind;  // of a literal
  // Layers; none: layer_end is layer_begin.
  int layer_begin = 0;
  int layer_end = 0;
  int micro_batch = -1;  // of the round; -1: none
  int unit = -1;         // of the job; -1: none
  int job = -1;          // in Trace::jobs; -1: none
  int64_t step = 0;      // 0: none
  uint64_t slot = 0;     // 0: none
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  uint64_t bytes = 0;
};

// From `started_ns` to `ended_ns` the device's tracks compute and wait have no
// gap; `times` is what its ledger says of the same span.
struct TracedDevice {
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  DeviceTimes times;
};

struct Trace {
  std::vector<std::string> jobs;  // ids; the first one is traced
  int64_t first_step = 0;
  int64_t step_count = 0;   // whole ones
  std::string ended_early;  // why there are fewer than asked; ""
  absl::Time start_time;
  int64_t started_ns = 0;
  uint64_t copies_left_out = 0;  // of slots with too many
  std::vector<TracedDevice> devices;
  std::vector<TraceInterval> intervals;  // in no order
};

// Thread-safe.
class TraceTask {
 public:
  // Whole steps so far.
  int64_t steps() const { return steps_; }
  // The trace, or why there is none; nothing while it is recorded.
  std::optional<absl::StatusOr<std::shared_ptr<const Trace>>> result() const {
    MutexLock lock(mutex_);
    return result_;
  }
  // The recording ends soon after; no effect on one that has ended.
  void Cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }

  // For whoever records it.
  void SetSteps(int64_t steps) { steps_ = steps; }
  void Finish(absl::StatusOr<std::shared_ptr<const Trace>> result) {
    MutexLock lock(mutex_);
    result_ = std::move(result);
  }

 private:
  std::atomic<int64_t> steps_ = 0;
  std::atomic<bool> cancelled_ = false;
  mutable Mutex mutex_;
  std::optional<absl::StatusOr<std::shared_ptr<const Trace>>> result_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_TRACE_H_
