#include "base/clock.h"

#include "absl/time/time.h"
#include "base/manual_clock.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(ClockTest, TheSystemsClockGoesOn) {
  const int64_t before_ns = MonotonicNs();
  const int64_t now_ns = SystemClock().MonotonicNs();
  const int64_t after_ns = MonotonicNs();
  EXPECT_GT(before_ns, 0);
  EXPECT_LE(before_ns, now_ns);
  EXPECT_LE(now_ns, after_ns);
  // After this was written, and before it is a museum's.
  EXPECT_GT(SystemClock().WallTime(), absl::FromUnixSeconds(1'790'000'000));
  EXPECT_LT(WallTime(), absl::FromUnixSeconds(10'000'000'000));
}

TEST(ManualClockTest, StandsStillUntilItIsAdvanced) {
  ManualClock clock;
  const int64_t before_ns = clock.MonotonicNs();
  const absl::Time before = clock.WallTime();
  EXPECT_EQ(clock.MonotonicNs(), before_ns);
  clock.Advance(absl::Minutes(1));
  clock.Advance(absl::Nanoseconds(7));
  EXPECT_EQ(clock.MonotonicNs() - before_ns, 60'000'000'007);
  EXPECT_EQ(clock.WallTime() - before, absl::Nanoseconds(60'000'000'007));
}

TEST(ManualClockTest, GoesAlongWithAnother) {
  ManualClock base;
  ManualClock clock(static_cast<const Clock&>(base));
  clock.Advance(absl::Seconds(2));
  base.Advance(absl::Seconds(3));
  EXPECT_EQ(clock.MonotonicNs() - base.MonotonicNs(), 2'000'000'000);
  EXPECT_EQ(clock.WallTime() - base.WallTime(), absl::Seconds(2));
  EXPECT_EQ(base.MonotonicNs(), 1'003'000'000'000);
}

}  // namespace
}  // namespace roundhouse
