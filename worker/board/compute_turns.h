// Whose the device is while slots of a backfill job are here: the compute
// thread's, but for its waits, in which the backfill thread may compute a layer
// at a time.
//
//   compute thread    turns.BeginWait(place); ...; turns.EndWait();
//   backfill thread   if (!turns.MayKeep(takes_ns)) {
//                       turns.GiveBack();
//                       if (!turns.Take(takes_ns, given_up)) return;
//                     }
//                     ... a layer ...
//
// A layer that is under way when the wait ends delays the compute thread. Steps
// are alike, so a wait is expected to last as the last ones at the same place.
// A layer begins where it ends before the shortest of them would have, or once
// the wait has lasted longer than the longest of them by the time of a layer:
// by then it is more likely to be a long one.  Where nothing is known, that is
// once it has lasted for the time of a layer.
//
// This cannot deadlock: the compute thread waits here for one layer at most,
// and whoever waits long enough lets the backfill thread go on.
//
// Thread-safe; the methods say whose they are.
#ifndef ROUNDHOUSE_WORKER_BOARD_COMPUTE_TURNS_H_
#define ROUNDHOUSE_WORKER_BOARD_COMPUTE_TURNS_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "worker/board/recent_times.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

// Where the compute thread waits: the same in each step of a job.
struct WaitPlace {
  enum class For : uint32_t {
    kNothingKnown,  // no slot was computed before
    kNextSlot,      // after the slot that is named
    kInput,
    kGradient,
    kWeights,
    kBuffer
  };
  For what = For::kNothingKnown;
  uint64_t job = 0;
  uint32_t kind = 0;  // SlotKind
  uint32_t first_layer = 0;
  uint64_t micro_batch = 0;  // of the slot
  uint64_t index = 0;        // of what is waited for

  auto operator<=>(const WaitPlace&) const = default;
};

// When what takes `takes_ns` may begin in a wait that began at `since_ns` and
// is expected to last as `expected` says; at the earliest now.  An eighth of
// what it takes is to be left: no time is exact, and threads wake up late.
int64_t MayBeginAt(int64_t now_ns, int64_t since_ns,
                   std::optional<TimeRange> expected, int64_t takes_ns);

class ComputeTurns {
 public:
  // --- the compute thread ---

  // It computes nothing until EndWait, which blocks until the layer that is
  // under way is done.  `queued`: after what its device may still compute; null
  // where that is nothing.
  void BeginWait(const WaitPlace& place, std::shared_ptr<Event> queued);
  void EndWait();

  // --- the backfill thread ---

  // Blocks until what takes `takes_ns` may be computed; the device is the
  // thread's then.  False: it is given up, the worker stops, or the device is
  // lost, which whoever computes finds next.
  bool Take(int64_t takes_ns, const std::function<bool()>& given_up);
  // Whether it has the device and may go on for `takes_ns`.
  bool MayKeep(int64_t takes_ns) const;
  bool has() const;
  void GiveBack();

  // --- anybody ---

  // Take looks at `given_up` again.
  void Wake();
  void Stop();

 private:
  bool MayTake(int64_t now_ns, int64_t takes_ns) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;    // by the backfill thread
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;  // the compute thread
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;   // by it, while it is taken
  std::shared_ptr<Event> queued_ ABSL_GUARDED_BY(mutex_);  // not waited for
  WaitPlace place_ ABSL_GUARDED_BY(mutex_);
  int64_t since_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<TimeRange> expected_ ABSL_GUARDED_BY(mutex_);
  RecentTimes<WaitPlace> waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_COMPUTE_TURNS_H_
