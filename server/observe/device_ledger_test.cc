#include "server/observe/device_ledger.h"

#include <random>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr int64_t kSecond = 1000000000;

int64_t Sum(const DeviceTimes& times) {
  return times.compute_ns + times.bubble_ns + times.idle_ns;
}

TEST(DeviceLedgerTest, TimeWithoutAJobIsIdle) {
  DeviceLedger ledger(100);
  EXPECT_EQ(ledger.TakeNew(150).idle_ns, 50);
  EXPECT_EQ(ledger.TakeNew(175).idle_ns, 25);
  EXPECT_EQ(ledger.total().idle_ns, 75);
  EXPECT_EQ(Sum(ledger.total()), 75);
}

TEST(DeviceLedgerTest, WhatASlotDidNotComputeIsBubble) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 10);
  ledger.AddSlot(110, 60);
  EXPECT_EQ(ledger.total().idle_ns, 10);
  EXPECT_EQ(ledger.total().compute_ns, 60);
  EXPECT_EQ(ledger.total().bubble_ns, 40);
  ledger.SetBusy(false, 130);
  EXPECT_EQ(ledger.total().bubble_ns, 60);
  EXPECT_EQ(Sum(ledger.total()), 130);
}

TEST(DeviceLedgerTest, ARunningSlotIsAccountedWhenItEnds) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 0);
  EXPECT_EQ(Sum(ledger.TakeNew(500)), 0);
  ledger.AddSlot(1000, 1000);
  const DeviceTimes fresh = ledger.TakeNew(1000);
  EXPECT_EQ(fresh.compute_ns, 1000);
  EXPECT_EQ(fresh.bubble_ns, 0);
}

TEST(DeviceLedgerTest, MoreComputationThanTimeIsCut) {
  DeviceLedger ledger(0);
  ledger.SetBusy(true, 0);
  ledger.AddSlot(100, 1000);
  EXPECT_EQ(ledger.total().compute_ns, 100);
  ledger.AddSlot(90, 50);  // an event from before: accounted already
  EXPECT_EQ(Sum(ledger.total()), 100);
}

TEST(DeviceLedgerTest, EverythingAddsUpToWallTime) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    int64_t now = 1000 * static_cast<int64_t>(seed);
    const int64_t start = now;
    DeviceLedger ledger(now);
    DeviceTimes taken;
    bool busy = false;
    for (int i = 0; i < 300; ++i) {
      now += static_cast<int64_t>(random() % 1000);
      const int64_t compute = static_cast<int64_t>(random() % 1500);
      switch (random() % 3) {
        case 0:
          busy = random() % 2 == 0;
          ledger.SetBusy(busy, now);
          break;
        case 1:
          if (busy) ledger.AddSlot(now, compute);
          break;
        default:
          const DeviceTimes fresh = ledger.TakeNew(now);
          ASSERT_GE(fresh.compute_ns, 0);
          ASSERT_GE(fresh.bubble_ns, 0);
          ASSERT_GE(fresh.idle_ns, 0);
          taken.compute_ns += fresh.compute_ns;
          taken.bubble_ns += fresh.bubble_ns;
          taken.idle_ns += fresh.idle_ns;
      }
      ASSERT_LE(Sum(ledger.total()), now - start);
    }
    ledger.SetBusy(false, now);
    const DeviceTimes rest = ledger.TakeNew(now);
    EXPECT_EQ(Sum(ledger.total()), now - start) << "seed " << seed;
    EXPECT_EQ(Sum(taken) + Sum(rest), now - start) << "seed " << seed;
  }
}

TEST(DeviceLedgerTest, TheRatioLooksAtItsWindowOnly) {
  DeviceLedger ledger(0);
  EXPECT_EQ(ledger.BubbleRatio(kSecond), 0);
  ledger.SetBusy(true, 0);
  int64_t now = 0;
  for (int second = 1; second <= 20; ++second) {
    now = second * kSecond;
    // The first ten seconds all bubble, then three quarters.
    ledger.AddSlot(now, second <= 10 ? 0 : kSecond / 4);
    ledger.TakeNew(now);
  }
  EXPECT_DOUBLE_EQ(ledger.BubbleRatio(5 * kSecond), 0.75);
  EXPECT_DOUBLE_EQ(ledger.BubbleRatio(19 * kSecond), 16.5 / 19);
}

}  // namespace
}  // namespace roundhouse
