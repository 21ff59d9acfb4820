#include "server/observe/device_ledger.h"

#include <numeric>
#include <random>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

using wire::WaitCause;
using wire::WaitTimes;

constexpr int64_t kSecond = 1000000000;

int64_t Sum(const DeviceTimes& times) {
  return times.compute_ns + times.bubble_ns + times.idle_ns + times.fenced_ns;
}

int64_t Causes(const DeviceTimes& times) {
  return std::accumulate(times.bubble_causes_ns.begin(),
                         times.bubble_causes_ns.end(), int64_t{0});
}

int64_t Of(const DeviceTimes& times, WaitCause cause) {
  return times.bubble_causes_ns[static_cast<uint32_t>(cause)];
}

WaitTimes Waits(WaitCause cause, int64_t ns) {
  WaitTimes waits = {};
  waits[static_cast<uint32_t>(cause)] = ns;
  return waits;
}

TEST(DeviceLedgerTest, WhatBackfillSlotsFillIsNoBubble) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 0);
  ledger.Backfilled(10, 40, true);   // before the first slot
  ledger.Backfilled(40, 50, false);  // nobody else was there
  ledger.Started(60, Waits(WaitCause::kData, 60), false);
  EXPECT_EQ(ledger.total().compute_ns, 40);
  EXPECT_EQ(ledger.total().filled_bubble_ns, 30);
  EXPECT_EQ(Of(ledger.total(), WaitCause::kData), 20);
  ledger.Backfilled(70, 90, true);  // in a wait of the slot
  ledger.Computed(100, Waits(WaitCause::kOptimizer, 25));
  EXPECT_EQ(ledger.total().compute_ns, 40 + 15 + 20);
  EXPECT_EQ(ledger.total().filled_bubble_ns, 50);
  EXPECT_EQ(Of(ledger.total(), WaitCause::kOptimizer), 5);
  ledger.Ended(110, {});
  EXPECT_EQ(Causes(ledger.total()), ledger.total().bubble_ns);
  EXPECT_EQ(Sum(ledger.total()), 110);
}

TEST(DeviceLedgerTest, TimeWithoutAJobIsIdle) {
  DeviceLedger ledger(100);
  EXPECT_EQ(ledger.TakeNew(150).idle_ns, 50);
  EXPECT_EQ(ledger.TakeNew(175).idle_ns, 25);
  EXPECT_EQ(ledger.total().idle_ns, 75);
  EXPECT_EQ(Sum(ledger.total()), 75);
}

TEST(DeviceLedgerTest, WhatASlotDidNotComputeIsBubbleOfItsCause) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 10);
  WaitTimes before = Waits(WaitCause::kData, 15);
  before[static_cast<uint32_t>(WaitCause::kH2D)] = 5;
  ledger.Started(30, before, false);
  ledger.Computed(60, Waits(WaitCause::kOptimizer, 10));
  ledger.Ended(110, Waits(WaitCause::kD2H, 20));
  const DeviceTimes& total = ledger.total();
  EXPECT_EQ(total.idle_ns, 10);
  EXPECT_EQ(total.compute_ns, 20 + 30);
  EXPECT_EQ(total.bubble_ns, 20 + 10 + 20);
  EXPECT_EQ(Of(total, WaitCause::kData), 15);
  EXPECT_EQ(Of(total, WaitCause::kH2D), 5);
  EXPECT_EQ(Of(total, WaitCause::kOptimizer), 10);
  EXPECT_EQ(Of(total, WaitCause::kD2H), 20);
  EXPECT_EQ(Causes(total), total.bubble_ns);
  EXPECT_EQ(Sum(total), 110);
}

TEST(DeviceLedgerTest, AWaitShowsBeforeItsCauseIsKnown) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 0);
  DeviceTimes fresh = ledger.TakeNew(500);
  EXPECT_EQ(fresh.bubble_ns, 500);
  EXPECT_EQ(Causes(fresh), 0);
  ledger.Started(800, Waits(WaitCause::kDependency, 800), false);
  fresh = ledger.TakeNew(900);
  EXPECT_EQ(fresh.bubble_ns, 300);
  EXPECT_EQ(Of(fresh, WaitCause::kDependency), 800);
}

TEST(DeviceLedgerTest, AMicroBatchIsAccountedWhenItEnds) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 0);
  ledger.Started(0, {}, false);
  EXPECT_EQ(Sum(ledger.TakeNew(500)), 0);
  ledger.Ended(1000, {});
  const DeviceTimes fresh = ledger.TakeNew(1000);
  EXPECT_EQ(fresh.compute_ns, 1000);
  EXPECT_EQ(fresh.bubble_ns, 0);
}

TEST(DeviceLedgerTest, WhatNobodyExplainsIsTheWaitForASlot) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 0);
  ledger.Started(100, Waits(WaitCause::kH2D, 30), false);
  EXPECT_EQ(Of(ledger.total(), WaitCause::kH2D), 30);
  EXPECT_EQ(Of(ledger.total(), WaitCause::kDispatch), 70);
}

TEST(DeviceLedgerTest, AtAJobsEndTheHostReduces) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 0);
  ledger.Started(0, {}, false);
  ledger.Ended(110, {});
  // No slot follows.
  ledger.SetBusy(false, 150);
  EXPECT_EQ(Of(ledger.total(), WaitCause::kOptimizer), 40);
  EXPECT_EQ(Causes(ledger.total()), ledger.total().bubble_ns);
}

TEST(DeviceLedgerTest, AWaitThatBeganWithoutAJobIsCutAtItsBeginning) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 900);
  WaitTimes waits = Waits(WaitCause::kDispatch, 950);
  waits[static_cast<uint32_t>(WaitCause::kH2D)] = 50;
  ledger.Started(1000, waits, false);
  EXPECT_EQ(ledger.total().idle_ns, 900);
  EXPECT_EQ(Of(ledger.total(), WaitCause::kDispatch), 50);
  EXPECT_EQ(Of(ledger.total(), WaitCause::kH2D), 50);
}

TEST(DeviceLedgerTest, MoreWaitThanTimeIsCut) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 0);
  ledger.Started(100, {}, false);
  ledger.Ended(150, Waits(WaitCause::kMemory, 90));
  EXPECT_EQ(ledger.total().compute_ns, 0);
  EXPECT_EQ(Of(ledger.total(), WaitCause::kMemory), 50);
  ledger.Ended(120, {});  // an older event: no time
  EXPECT_EQ(Sum(ledger.total()), 150);
}

TEST(DeviceLedgerTest, ComputationInAnothersBubbleIsCounted) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 0);
  ledger.Started(0, {}, true);
  ledger.Ended(40, Waits(WaitCause::kH2D, 10));
  ledger.Started(40, {}, false);
  ledger.Ended(90, {});
  EXPECT_EQ(ledger.total().filled_bubble_ns, 30);
  EXPECT_EQ(ledger.total().compute_ns, 80);
}

TEST(DeviceLedgerTest, ASlotThatWasGivenUpComputedUntilTheNextWait) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 0);
  ledger.Started(0, {}, false);
  ledger.Computed(10, {});
  ledger.Started(100, Waits(WaitCause::kDependency, 60), false);
  EXPECT_EQ(ledger.total().compute_ns, 40);
  EXPECT_EQ(Of(ledger.total(), WaitCause::kDependency), 60);
}

TEST(DeviceLedgerTest, ASlotThatWasGivenUpDoesNotComputeForEver) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 0);
  ledger.Started(0, {}, false);
  ledger.GaveUp(10);
  ledger.GaveUp(30);  // nothing to give up
  ledger.SetBusy(false, 40);
  EXPECT_EQ(ledger.TakeNew(100).idle_ns, 60);
  EXPECT_EQ(ledger.total().compute_ns, 10);
  EXPECT_EQ(ledger.total().bubble_ns, 30);
}

TEST(DeviceLedgerTest, ADeadWorkersTimeIsNotLost) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 0);
  ledger.Started(0, {}, false);
  ledger.GaveUp(30);
  EXPECT_EQ(ledger.TakeNew(50).bubble_ns, 20);
  ledger.Fence(60);
  EXPECT_EQ(ledger.TakeNew(100).fenced_ns, 40);
  // It comes back while a job has work.
  ledger.Unfence(110);
  EXPECT_EQ(ledger.TakeNew(130).bubble_ns, 20);
  EXPECT_EQ(ledger.total().fenced_ns, 50);
  EXPECT_EQ(ledger.total().compute_ns, 30);
  EXPECT_EQ(ledger.total().bubble_ns, 50);
  EXPECT_EQ(Causes(ledger.total()), 30);
}

TEST(DeviceLedgerTest, StatesSumToWallTimeAndCausesToBubbles) {
  std::mt19937_64 random(5);
  for (int run = 0; run < 100; ++run) {
    DeviceLedger ledger(0);
    DeviceTimes counted;
    int64_t now = 0;
    const auto pass = [&] {
      return now += static_cast<int64_t>(random() % 1000);
    };
    const auto draw = [&] {
      WaitTimes waits = {};
      for (int64_t& wait : waits) {
        wait = static_cast<int64_t>(random() % 300);
      }
      return waits;
    };
    for (int i = 0; i < 400; ++i) {
      switch (random() % 6) {
        case 0:
          ledger.SetBusy(random() % 4 != 0, pass());
          break;
        case 1:
          ledger.Started(pass(), draw(), random() % 2 == 0);
          break;
        case 2:
        case 3: {
          const int64_t at = pass();
          const wire::WaitTimes waits = draw();
          if (random() % 2 == 0) {
            ledger.Ended(at, waits);
          } else {
            ledger.Computed(at, waits);
          }
          break;
        }
        case 4:
          ledger.GaveUp(pass());
          break;
        default:
          const DeviceTimes fresh = ledger.TakeNew(pass());
          counted.compute_ns += fresh.compute_ns;
          counted.bubble_ns += fresh.bubble_ns;
          counted.idle_ns += fresh.idle_ns;
      }
    }
    ledger.Ended(now, {});
    ledger.SetBusy(true, now);
    ledger.SetBusy(false, now);
    const DeviceTimes fresh = ledger.TakeNew(now);
    EXPECT_EQ(Sum(ledger.total()), now);
    EXPECT_EQ(Causes(ledger.total()), ledger.total().bubble_ns);
    EXPECT_EQ(counted.compute_ns + fresh.compute_ns, ledger.total().compute_ns);
    EXPECT_EQ(counted.bubble_ns + fresh.bubble_ns, ledger.total().bubble_ns);
    EXPECT_LE(ledger.total().filled_bubble_ns, ledger.total().compute_ns);
  }
}

TEST(DeviceLedgerTest, TheRatioIsOfTheWindow) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 0);
  for (int second = 1; second <= 30; ++second) {
    // Ten seconds of bubbles, then none.
    ledger.Started((second - 1) * kSecond, {}, false);
    const int64_t waited = second <= 10 ? kSecond / 2 : 0;
    ledger.Ended(second * kSecond, Waits(WaitCause::kH2D, waited));
    ledger.TakeNew(second * kSecond);
  }
  EXPECT_EQ(ledger.BubbleRatio(10 * kSecond), 0);
  EXPECT_NEAR(ledger.BubbleRatio(25 * kSecond), 5 * 0.5 / 25, 0.01);
  EXPECT_EQ(DeviceLedger(0).BubbleRatio(kSecond), 0);
}

TEST(DeviceLedgerTest, AWindowHasWhatCameInIt) {
  DeviceLedger ledger(0);
  EXPECT_EQ(Sum(ledger.Window(10 * kSecond)), 0);
  ledger.SetBusy(true, 0);
  ledger.TakeNew(0);
  for (int second = 1; second <= 20; ++second) {
    const auto cause = second <= 10 ? WaitCause::kData : WaitCause::kH2D;
    const int64_t end = second * kSecond;
    ledger.Started(end - kSecond / 4, Waits(cause, kSecond * 3 / 4), false);
    ledger.Ended(end, {});
    ledger.TakeNew(end);
  }
  const DeviceTimes window = ledger.Window(10 * kSecond);
  EXPECT_EQ(window.compute_ns, 10 * kSecond / 4);
  EXPECT_EQ(window.bubble_ns, 10 * kSecond * 3 / 4);
  EXPECT_EQ(Of(window, WaitCause::kH2D), window.bubble_ns);
  EXPECT_EQ(Of(window, WaitCause::kData), 0);
  EXPECT_DOUBLE_EQ(ledger.BubbleRatio(10 * kSecond), 0.75);
}

}  // namespace
}  // namespace roundhouse
