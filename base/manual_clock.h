// A clock for tests, which a test moves on.
//
//   ManualClock clock;                 // stands still until Advance
//   ManualClock clock(SystemClock());  // time passes by itself, too
//
// Threads that sleep are not woken: whoever waits looks at the clock when
// something else wakes it.  An event loop's timers, for one, fire in its next
// turn: Advance on its thread, or Post something afterwards.
#ifndef ROUNDHOUSE_BASE_MANUAL_CLOCK_H_
#define ROUNDHOUSE_BASE_MANUAL_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "base/clock.h"

namespace roundhouse {

// Thread-safe.
class ManualClock final : public Clock {
 public:
  // 1000 s after the system's start, in 2023.
  ManualClock() = default;
  // As `base`, which outlives it, but for what it is advanced.
  explicit ManualClock(const Clock& base) : base_(&base) {}

  void Advance(absl::Duration time) {
    advanced_ns_.fetch_add(absl::ToInt64Nanoseconds(time));
  }

  int64_t MonotonicNs() const override {
    return advanced_ns_.load() +
           (base_ != nullptr ? base_->MonotonicNs() : 1'000'000'000'000);
  }
  absl::Time WallTime() const override {
    return absl::Nanoseconds(advanced_ns_.load()) +
           (base_ != nullptr ? base_->WallTime()
                             : absl::FromUnixSeconds(1'700'000'000));
  }

 private:
  const Clock* const base_ = nullptr;  // null: it stands still
  std::atomic<int64_t> advanced_ns_{0};
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MANUAL_CLOCK_H_
