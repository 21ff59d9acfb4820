// Time that passes instead of work.
//
// A *resource* (a device's compute engine, one direction of its link, host
// memory) does one thing at a time on an ideal clock: an interval begins when
// the resource is free and what it needs is there, and ends its duration later
// to the nanosecond.  Whoever uses the resource sleeps until that end.  A
// thread that wakes up late, or gets a core late, returns late; the next
// interval begins where the last one ended all the same, so lateness never adds
// up.  One that comes when its interval is over already does not sleep.
#ifndef ROUNDHOUSE_TESTS_FAKES_PACE_H_
#define ROUNDHOUSE_TESTS_FAKES_PACE_H_

#include <cstdint>
#include <limits>

#include "base/mutex.h"

namespace roundhouse::fakes {

// Nanoseconds.  Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t Now() = 0;
  // Returns at once when that is past.
  virtual void SleepUntil(int64_t time_ns) = 0;
};

// CLOCK_MONOTONIC.
Clock& MonotonicClock();

// Thread-safe.
class Resource {
 public:
  // Whoever comes back within this long has not waited for anything else.
  static constexpr int64_t kAtOnceNs = 200'000;

  struct Interval {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };

  // Free from now on.  `clock` outlives it.
  explicit Resource(Clock& clock) : clock_(clock), free_ns_(clock.Now()) {}

  // Work that the hardware had queued, as a kernel behind a kernel: begins when
  // the resource is free, not before `ready_ns`.  Blocks until its end.
  Interval Queued(int64_t ready_ns, int64_t duration_ns);

  // Work that nobody asked for before this call: begins not before the call
  // either.  A call that comes at once (kAtOnceNs) after the last one returned
  // counts as made when the last interval ended.
  Interval Asked(int64_t ready_ns, int64_t duration_ns);

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min() / 2;

  Interval Take(int64_t ready_ns, int64_t duration_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Interval WaitFor(const Interval& interval);

  Clock& clock_;
  Mutex mutex_;
  int64_t free_ns_ ABSL_GUARDED_BY(mutex_);
  int64_t returned_ns_ ABSL_GUARDED_BY(mutex_) = kNever;
};

}  // namespace roundhouse::fakes

#endif  // ROUNDHOUSE_TESTS_FAKES_PACE_H_
