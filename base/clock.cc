#include "base/clock.h"

#include <time.h>

#include <atomic>

#include "absl/time/clock.h"

namespace roundhouse {
namespace {

// Null: the system's.
std::atomic<const Clock*> test_time = nullptr;

class RealClock final : public Clock {
 public:
  int64_t MonotonicNs() const override { return roundhouse::MonotonicNs(); }
  absl::Time WallTime() const override { return roundhouse::WallTime(); }
};

}  // namespace

void SetTimeForTest(const Clock* clock) { test_time = clock; }

int64_t MonotonicNs() {
  const Clock* const test = test_time.load(std::memory_order_relaxed);
  if (test != nullptr) return test->MonotonicNs();
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

absl::Time WallTime() {
  const Clock* const test = test_time.load(std::memory_order_relaxed);
  return test != nullptr ? test->WallTime() : absl::Now();
}

const Clock& SystemClock() {
  static const Clock& clock = *new RealClock;
  return clock;
}

}  // namespace roundhouse
