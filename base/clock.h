// The one door to the time: nothing else of the daemon and its workers asks the
// system what time it is (tests/house/figures.py counts who does).  Waits with
// a deadline are CondVar's (base/mutex.h).
//
// Whoever decides by the time (limits, delays, deadlines) is given a Clock, and
// a test another one (base/manual_clock.h).  Who only writes a time down, in a
// message, a record or a metric, may call the two functions.
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

// What the two functions say.  It lives as long as the process.
const Clock& SystemClock();

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_CLOCK_H_
