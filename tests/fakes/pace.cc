#include "tests/fakes/pace.h"

#include <time.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"

namespace roundhouse::fakes {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

class RealClock : public Clock {
 public:
  int64_t Now() override { return MonotonicNs(); }
  void SleepUntil(int64_t time_ns) override {
    if (time_ns <= Now()) return;
    timespec until;
    until.tv_sec = time_ns / kSecondNs;
    until.tv_nsec = time_ns % kSecondNs;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) ==
           EINTR) {
    }
  }
};

}  // namespace

Clock& MonotonicClock() {
  static RealClock clock;
  return clock;
}

Resource::Interval Resource::Take(int64_t ready_ns, int64_t duration_ns) {
  Interval interval;
  interval.begin_ns = std::max(free_ns_, ready_ns);
  interval.end_ns = free_ns_ = interval.begin_ns + duration_ns;
  return interval;
}

Resource::Interval Resource::WaitFor(const Interval& interval) {
  if (interval.end_ns > interval.begin_ns) clock_.SleepUntil(interval.end_ns);
  const int64_t now = clock_.Now();
  MutexLock lock(mutex_);
  returned_ns_ = now;
  return interval;
}

Resource::Interval Resource::Queued(int64_t ready_ns, int64_t duration_ns) {
  Interval interval;
  {
    MutexLock lock(mutex_);
    interval = Take(ready_ns, duration_ns);
  }
  return WaitFor(interval);
}

Resource::Interval Resource::Asked(int64_t ready_ns, int64_t duration_ns) {
  const int64_t now = clock_.Now();
  Interval interval;
  {
    MutexLock lock(mutex_);
    const bool at_once = now - returned_ns_ <= kAtOnceNs;
    interval = Take(std::max(ready_ns, at_once ? free_ns_ : now), duration_ns);
  }
  return WaitFor(interval);
}

}  // namespace roundhouse::fakes
