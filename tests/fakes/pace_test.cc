#include "tests/fakes/pace.h"

#include "gtest/gtest.h"
#include "tests/fakes/test_clock.h"

namespace roundhouse::fakes {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(PaceTest, QueuedWorkIsBackToBackHoweverLateItsThreadWakesUp) {
  TestClock clock(3 * kMs);
  Resource engine(clock);
  for (int i = 0; i < 10; ++i) {
    const auto interval = engine.Queued(0, 10 * kMs);
    EXPECT_EQ(interval.begin_ns, i * 10 * kMs);
    EXPECT_EQ(interval.end_ns, (i + 1) * 10 * kMs);
  }
  EXPECT_EQ(clock.Now(), 103 * kMs);  // late once, not ten times
}

TEST(PaceTest, WhoComesAfterTheEndDoesNotSleep) {
  TestClock clock(3 * kMs);
  Resource engine(clock);
  engine.Queued(0, 10 * kMs);
  clock.Advance(50 * kMs);
  EXPECT_EQ(engine.Queued(0, 10 * kMs).end_ns, 20 * kMs);
  EXPECT_EQ(clock.Now(), 63 * kMs);
}

TEST(PaceTest, BeginsWhenWhatItNeedsIsThere) {
  TestClock clock;
  Resource engine(clock);
  EXPECT_EQ(engine.Queued(7 * kMs, 10 * kMs).begin_ns, 7 * kMs);
  EXPECT_EQ(engine.Queued(12 * kMs, kMs).begin_ns, 17 * kMs);
  EXPECT_EQ(engine.Queued(30 * kMs, kMs).begin_ns, 30 * kMs);
}

TEST(PaceTest, WorkOfNoDurationTakesItsPlaceInTheOrderOnly) {
  TestClock clock(3 * kMs);
  Resource engine(clock);
  EXPECT_EQ(engine.Queued(5 * kMs, 0).end_ns, 5 * kMs);
  EXPECT_EQ(clock.Now(), 0);
  EXPECT_EQ(engine.Queued(0, kMs).begin_ns, 5 * kMs);
}

TEST(PaceTest, WhatIsAskedForBeginsWithTheCall) {
  TestClock clock;
  Resource link(clock);
  clock.Advance(4 * kMs);
  EXPECT_EQ(link.Asked(0, kMs).begin_ns, 4 * kMs);
  clock.Advance(kMs);
  EXPECT_EQ(link.Asked(0, kMs).begin_ns, 6 * kMs);
  clock.Advance(kMs);
  EXPECT_EQ(link.Asked(20 * kMs, kMs).begin_ns, 20 * kMs);
}

TEST(PaceTest, WhatIsAskedForAtOnceFollowsTheLast) {
  TestClock clock(3 * kMs);
  Resource link(clock);
  EXPECT_EQ(link.Asked(0, 10 * kMs).end_ns, 10 * kMs);
  clock.Advance(Resource::kAtOnceNs);
  EXPECT_EQ(link.Asked(0, 10 * kMs).begin_ns, 10 * kMs);
  clock.Advance(Resource::kAtOnceNs + 1);
  EXPECT_EQ(link.Asked(0, 10 * kMs).begin_ns,
            23 * kMs + Resource::kAtOnceNs + 1);
}

TEST(PaceTest, TheRealClockSleepsNoLess) {
  Clock& clock = MonotonicClock();
  const int64_t until = clock.Now() + 2 * kMs;
  clock.SleepUntil(until);
  EXPECT_GE(clock.Now(), until);
  clock.SleepUntil(until);  // is past
}

}  // namespace
}  // namespace roundhouse::fakes
