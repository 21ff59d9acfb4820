#include "worker/board/compute_turns.h"

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

constexpr WaitPlace kPlace = {.what = WaitPlace::For::kInput, .job = 7};
constexpr int64_t kHourNs = int64_t{3600} * 1'000'000'000;

bool Never() { return false; }

TEST(RecentTimesTest, AreThoseOfTheLastThree) {
  RecentTimes<int> times;
  EXPECT_FALSE(times.Range(1).has_value());
  times.Note(1, 2);
  EXPECT_EQ(times.Range(1)->longest_ns, 2);
  for (const int64_t ns : {5, 9, 7}) times.Note(1, ns);
  EXPECT_EQ(times.Range(1)->shortest_ns, 5);
  EXPECT_EQ(times.Range(1)->longest_ns, 9);
  EXPECT_FALSE(times.Range(2).has_value());
}

TEST(RecentTimesTest, AreBounded) {
  RecentTimes<size_t> times;
  for (size_t i = 0; i < 3 * RecentTimes<size_t>::kMostKeys; ++i) {
    times.Note(i, 1);
    EXPECT_TRUE(times.Range(i).has_value());
  }
  EXPECT_FALSE(times.Range(0).has_value());  // forgotten
}

TEST(MayBeginAtTest, WhatFitsIntoTheShortestWaitBeginsAtOnce) {
  EXPECT_EQ(MayBeginAt(100, 100, TimeRange{90, 99}, 80), 100);
  EXPECT_EQ(MayBeginAt(132, 100, TimeRange{50, 60}, 16), 132);
}

TEST(MayBeginAtTest, WhatDoesNotFitWaitsForAsLongBeyondTheLongest) {
  EXPECT_EQ(MayBeginAt(133, 100, TimeRange{50, 60}, 16), 176);
  EXPECT_EQ(MayBeginAt(100, 100, TimeRange{50, 50}, 60), 210);
  EXPECT_EQ(MayBeginAt(300, 100, TimeRange{50, 50}, 60), 300);
}

TEST(MayBeginAtTest, WhereNothingIsKnownTheWaitShowsFirst) {
  EXPECT_EQ(MayBeginAt(100, 100, std::nullopt, 20), 120);
  EXPECT_EQ(MayBeginAt(125, 100, std::nullopt, 20), 125);
}

TEST(ComputeTurnsTest, TheDeviceIsTakenInWaitsOnly) {
  ComputeTurns turns;
  std::atomic<bool> took = false;
  std::thread backfill([&] {
    EXPECT_TRUE(turns.Take(0, Never));
    took = true;
  });
  EXPECT_FALSE(turns.MayKeep(0));
  EXPECT_FALSE(took);
  turns.BeginWait({}, nullptr);
  backfill.join();
  EXPECT_TRUE(turns.has());
  EXPECT_TRUE(turns.MayKeep(0));
  EXPECT_FALSE(turns.MayKeep(kHourNs));
  turns.GiveBack();
  EXPECT_FALSE(turns.MayKeep(0));
  turns.EndWait();
}

TEST(ComputeTurnsTest, TheWaitEndsOnceTheLayerIsOver) {
  ComputeTurns turns;
  turns.BeginWait({}, nullptr);
  ASSERT_TRUE(turns.Take(0, Never));
  std::atomic<bool> over = false;
  std::thread compute([&] {
    turns.EndWait();
    EXPECT_TRUE(over);
  });
  while (turns.MayKeep(0)) std::this_thread::yield();  // it is wanted
  over = true;
  turns.GiveBack();
  compute.join();
}

// A wait that was long before is expected to be.
TEST(ComputeTurnsTest, ALongLayerBeginsWhereItFits) {
  ComputeTurns turns;
  turns.BeginWait(kPlace, nullptr);
  const int64_t until_ns = MonotonicNs() + 50'000'000;
  while (MonotonicNs() < until_ns) std::this_thread::yield();
  turns.EndWait();
  turns.BeginWait(kPlace, nullptr);
  EXPECT_TRUE(turns.Take(1'000'000, Never));
  turns.GiveBack();
  turns.EndWait();
}

class Queued final : public Event {
 public:
  explicit Queued(absl::Status status) : status_(std::move(status)) {}
  absl::Status Wait() override {
    waited_ = true;
    return status_;
  }
  bool waited() const { return waited_; }

 private:
  const absl::Status status_;
  std::atomic<bool> waited_ = false;
};

TEST(ComputeTurnsTest, WhatTheDeviceStillComputesIsWaitedFor) {
  ComputeTurns turns;
  const auto queued = std::make_shared<Queued>(absl::OkStatus());
  turns.BeginWait({}, queued);
  EXPECT_FALSE(queued->waited());
  EXPECT_TRUE(turns.Take(0, Never));
  EXPECT_TRUE(queued->waited());
  turns.GiveBack();
  turns.EndWait();
  turns.BeginWait({}, std::make_shared<Queued>(absl::AbortedError("lost")));
  EXPECT_FALSE(turns.Take(0, Never));
  turns.EndWait();
}

TEST(ComputeTurnsTest, WhatIsGivenUpOrStoppedTakesNothing) {
  ComputeTurns turns;
  std::atomic<bool> given_up = false;
  std::thread waits([&] {
    EXPECT_FALSE(turns.Take(kHourNs, [&] { return given_up.load(); }));
  });
  given_up = true;
  turns.Wake();
  waits.join();
  std::thread stops([&] { EXPECT_FALSE(turns.Take(kHourNs, Never)); });
  turns.Stop();
  stops.join();
  turns.EndWait();
}

}  // namespace
}  // namespace roundhouse::worker
