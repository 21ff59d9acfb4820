// The one door to the time: nothing else of the daemon and its workers asks the
// system what time it is (tests/house/doors.py counts who does).  Waits with
// a deadline are CondVar's (base/mutex.h).
//
// What runs on the event loop, at the front door or in the pool of workers
// decides by a Clock, and a test gives it another one (base/manual_clock.h).
// Threads that wait have CondVar's deadlines, which no test moves on: their
// limits are options, which a test makes short.  A time that is only written
// down comes from the two functions.
#ifndef ROUNDHOUSE_BASE_CLOCK_H_
#define ROUNDHOUSE_BASE_CLOCK_H_

#include <cstdint>

#include "absl/time/time.h"

namespace roundhouse {

// CLOCK_MONOTONIC in nanoseconds; the same clock in every process of this
// machine.  Nobody sets it.
int64_t MonotonicNs();
// The time of day, which somebody may set.
absl::Time WallTime();

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t MonotonicNs() const = 0;
  virtual absl::Time WallTime() const = 0;
};

// What the two functions and SystemClock() say from now on, in the whole
// process; null: the system's time again.  `clock` outlives that.  Test only
// (tests/sim).
void SetTimeForTest(const Clock* clock);

// What the two functions say.  It lives as long as the process.
const Clock& SystemClock();

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_CLOCK_H_
