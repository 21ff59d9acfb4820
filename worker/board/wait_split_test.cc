#include "worker/board/wait_split.h"

#include <numeric>
#include <random>

#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

using wire::WaitCause;

int64_t Of(const wire::WaitTimes& waits, WaitCause cause) {
  return waits[static_cast<uint32_t>(cause)];
}

TEST(WaitSplitTest, TimeBeforeAMilestoneIsItsCauses) {
  wire::WaitTimes waits = {};
  SplitWait(100, 200,
            {{130, WaitCause::kOptimizer},
             {150, WaitCause::kMemory},
             {190, WaitCause::kH2D}},
            waits);
  EXPECT_EQ(Of(waits, WaitCause::kOptimizer), 30);
  EXPECT_EQ(Of(waits, WaitCause::kMemory), 20);
  EXPECT_EQ(Of(waits, WaitCause::kH2D), 50);  // the rest is the last one's
}

TEST(WaitSplitTest, WhatWasReadyBeforeTheWaitCostsNothing) {
  wire::WaitTimes waits = {};
  SplitWait(100, 200,
            {{0, WaitCause::kOptimizer},
             {90, WaitCause::kMemory},
             {180, WaitCause::kH2D}},
            waits);
  EXPECT_EQ(Of(waits, WaitCause::kOptimizer), 0);
  EXPECT_EQ(Of(waits, WaitCause::kMemory), 0);
  EXPECT_EQ(Of(waits, WaitCause::kH2D), 100);
}

TEST(WaitSplitTest, NothingIsLostWhateverTheOrder) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    auto draw = [&] { return static_cast<int64_t>(random() % 1000); };
    wire::WaitTimes waits = {};
    const int64_t began = draw();
    const int64_t ended = began + draw();
    SplitWait(began, ended,
              {{draw(), WaitCause::kDispatch},
               {draw(), WaitCause::kDependency},
               {draw(), WaitCause::kH2D}},
              waits);
    EXPECT_EQ(std::accumulate(waits.begin(), waits.end(), int64_t{0}),
              ended - began);
    for (const int64_t wait : waits) EXPECT_GE(wait, 0);
  }
}

}  // namespace
}  // namespace roundhouse::worker
