#include "scheduler/simulate/transfer_rates.h"

#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(TransferRatesTest, ALoneTransferGoesAtItsChannelsRate) {
  TransferRates rates({2, 10}, 10);
  EXPECT_EQ(rates.NextEndNs(), TransferRates::kNever);
  rates.Start(0, 7);
  EXPECT_EQ(rates.Settle(), std::vector<int>{0});
  EXPECT_EQ(rates.NextEndNs(), 4);  // rounded up
  rates.AdvanceTo(3);
  EXPECT_EQ(rates.MovedBytes(0), 6);
  EXPECT_FALSE(rates.TakeEnded(0));
  rates.AdvanceTo(4);
  EXPECT_EQ(rates.MovedBytes(0), 7);
  EXPECT_TRUE(rates.TakeEnded(0));
  EXPECT_FALSE(rates.TakeEnded(0));
}

TEST(TransferRatesTest, WhatSlowChannelsLeaveIsShared) {
  TransferRates rates({1, 10, 10}, 9);
  rates.Start(0, 100);
  rates.Start(1, 8);
  rates.Start(2, 80);
  rates.Settle();
  // 1 for the first, half of the other 8 each.
  EXPECT_EQ(rates.NextEndNs(), 2);
  rates.AdvanceTo(2);
  ASSERT_TRUE(rates.TakeEnded(1));
  // The third gets all that is left, the first keeps its rate.
  EXPECT_EQ(rates.Settle(), std::vector<int>{2});
  EXPECT_EQ(rates.NextEndNs(), 2 + 9);
  EXPECT_TRUE(rates.Settle().empty());
}

TEST(TransferRatesTest, OnlySharedChannelsShare) {
  TransferRates rates({4, 4, 10, 10}, 10, 2);
  for (int channel = 0; channel < 4; ++channel) rates.Start(channel, 40);
  EXPECT_EQ(rates.Settle().size(), 4);
  EXPECT_EQ(rates.NextEndNs(), 8);  // of the last two: 5 each
  rates.AdvanceTo(8);
  ASSERT_TRUE(rates.TakeEnded(2));
  ASSERT_TRUE(rates.TakeEnded(3));
  EXPECT_EQ(rates.MovedBytes(0), 32);
  rates.Settle();
  EXPECT_EQ(rates.NextEndNs(), 10);
}

TEST(TransferRatesTest, GivingWayEndsAtTheNextChunk) {
  TransferRates rates({1}, 1);
  rates.Start(0, 100);
  rates.Settle();
  rates.AdvanceTo(13);
  rates.EndAtChunk(0, 10, 0);
  rates.Settle();
  EXPECT_EQ(rates.NextEndNs(), 20);
  rates.AdvanceTo(20);
  ASSERT_TRUE(rates.TakeEnded(0));
  EXPECT_EQ(rates.MovedBytes(0), 20);
  // What gave way at byte 20 and 25 goes on to multiples of 10.
  rates.Start(0, 80);
  rates.EndAtChunk(0, 10, 20);
  rates.Settle();
  EXPECT_EQ(rates.NextEndNs(), 30);
  rates.AdvanceTo(30);
  ASSERT_TRUE(rates.TakeEnded(0));
  // Never past the end.
  rates.Start(0, 3);
  rates.EndAtChunk(0, 10, 20);
  rates.Settle();
  EXPECT_EQ(rates.NextEndNs(), 33);
}

TEST(TransferRatesTest, AChannelsLimitIsThatOfItsNextTransfer) {
  TransferRates rates({10, 10}, 100);
  for (const double limit : {5, 20}) {
    rates.SetLimit(0, limit);
    rates.Start(0, 100);
    rates.Settle();
    rates.AdvanceTo(rates.NextEndNs());
    ASSERT_TRUE(rates.TakeEnded(0));
  }
  rates.Settle();
  rates.Start(1, 100);
  rates.Settle();
  EXPECT_EQ(rates.NextEndNs(), 20 + 5 + 10);
}

TEST(TransferRatesTest, ACancelledTransferLeavesItsShare) {
  TransferRates rates({10, 10}, 10);
  rates.Start(0, 100);
  rates.Start(1, 100);
  rates.Settle();
  rates.AdvanceTo(10);
  EXPECT_EQ(rates.MovedBytes(0), 50);
  rates.Cancel(0);
  EXPECT_FALSE(rates.busy(0));
  rates.Settle();
  EXPECT_EQ(rates.NextEndNs(), 15);
  rates.AdvanceTo(15);
  EXPECT_FALSE(rates.TakeEnded(0));
  EXPECT_TRUE(rates.TakeEnded(1));
}

}  // namespace
}  // namespace roundhouse
