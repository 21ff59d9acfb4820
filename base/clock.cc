#include "base/clock.h"

#include <time.h>

#include "absl/time/clock.h"

namespace roundhouse {
namespace {

class RealClock final : public Clock {
 public:
  int64_t MonotonicNs() const override { return roundhouse::MonotonicNs(); }
  absl::Time WallTime() const override { return roundhouse::WallTime(); }
};

}  // namespace

int64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

absl::Time WallTime() { return absl::Now(); }

const Clock& SystemClock() {
  static const Clock& clock = *new RealClock;
  return clock;
}

}  // namespace roundhouse
