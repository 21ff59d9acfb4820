#include "tests/published/baselines.h"

#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"
#include "scheduler/simulate/checker.h"
#include "tests/published/partitions.h"

namespace roundhouse {
namespace {

CheckOptions Options(int devices, int micro_batches, Baseline baseline) {
  CheckOptions options;
  options.machine.devices.resize(devices);
  options.micro_batches = micro_batches;
  options.head_forward_waits = baseline != Baseline::kRoundpipe;
  return options;
}

Plan TwoByTwo() {
  Plan plan;
  plan.fused = true;
  plan.forward = {{0, 1}, {2, 3}};
  plan.backward = {{4, 4}, {2, 3}, {0, 1}};
  return plan;
}

TEST(BaselinesTest, GpipeOfEqualStagesTakesWhatTheFormulaSays) {
  ModelCosts costs = SmallModel(4);
  costs.hop_ns = costs.head_forward_ns = costs.head_backward_ns = 0;
  const Stages stages = {{0, 0}, {1, 1}, {2, 2}, {3, 4}};
  const auto schedule =
      SimulatePlacedBaseline(Baseline::kGpipe, costs, stages, 4, 6);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  // (M + N - 1) stages of forward, then of recompute and backward.
  EXPECT_EQ(schedule->MakespanNs(), 9 * 1'000'000 + 9 * 3'000'000);
  EXPECT_EQ(schedule->BusyNs(), 6 * 4 * 4'000'000);
}

TEST(BaselinesTest, OneDeviceHasNoBubble) {
  const ModelCosts costs = SmallModel(4);
  for (const Baseline baseline : kBaselines) {
    SCOPED_TRACE(BaselineName(baseline));
    const auto schedule =
        baseline == Baseline::kRoundpipe
            ? SimulateRoundpipe(costs, TwoByTwo(), 1, 5)
            : SimulatePlacedBaseline(baseline, costs,
                                     BalancedStages(baseline, costs, 1), 1, 5);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(schedule->MakespanNs(), 5 * costs.MicroBatchNs());
    EXPECT_EQ(schedule->BubblePercent(), 0);
  }
}

// No deadlock and nothing that the checker objects to, also where devices,
// stages and micro-batches do not divide each other.
TEST(BaselinesTest, EveryShapeIsASchedule) {
  const ModelCosts costs = SmallModel(11);
  for (const Baseline baseline : kBaselines) {
    for (int devices = 1; devices <= 8; ++devices) {
      for (const int micro_batches : {1, 2, 3, 7, 8, 12, 16, 21, 24}) {
        SCOPED_TRACE(testing::Message() << BaselineName(baseline) << " "
                                        << devices << " " << micro_batches);
        Plan plan;
        plan.fused = true;
        plan.forward = {{0, 4}, {5, 8}};
        plan.backward = {{9, 11}, {6, 8}, {3, 5}, {0, 2}};
        const auto schedule =
            baseline == Baseline::kRoundpipe
                ? SimulateRoundpipe(costs, plan, devices, micro_batches)
                : SimulatePlacedBaseline(
                      baseline, costs, BalancedStages(baseline, costs, devices),
                      devices, micro_batches);
        ASSERT_TRUE(schedule.ok()) << schedule.status();
        EXPECT_EQ(
            CheckPublishedSchedule(*schedule, costs,
                                   Options(devices, micro_batches, baseline)),
            absl::OkStatus());
      }
    }
  }
}

TEST(BaselinesTest, AllWideLosesTheUnevenSplitOnly) {
  const ModelCosts costs = SmallModel(4);
  const auto even = SimulateAllWide(costs, 4, 8);
  ASSERT_TRUE(even.ok()) << even.status();
  EXPECT_EQ(even->MakespanNs(), 2 * costs.MicroBatchNs());
  EXPECT_EQ(even->BubblePercent(), 0);
  const auto uneven = SimulateAllWide(costs, 4, 6);
  EXPECT_DOUBLE_EQ(uneven->BubblePercent(), 25);
  EXPECT_EQ(
      CheckPublishedSchedule(*uneven, costs, Options(4, 6, Baseline::kGpipe)),
      absl::OkStatus());
  EXPECT_FALSE(SimulateAllWide(costs, 0, 8).ok());
}

// Fused layers are not recomputed: their forward's time is all that is saved.
TEST(BaselinesTest, ALongerFusedTailSavesItsRecompute) {
  const ModelCosts costs = SmallModel(4);
  Plan fused;
  fused.fused = true;
  fused.forward = {{0, 1}};
  fused.backward = {{2, 4}, {0, 1}};
  const auto with = SimulateRoundpipe(costs, fused, 1, 3);
  const auto without = SimulateRoundpipe(costs, TwoByTwo(), 1, 3);
  EXPECT_EQ(without->MakespanNs() - with->MakespanNs(), 3 * 2 * 1'000'000);
}

TEST(BaselinesTest, WhatCannotBeSimulatedIsRefused) {
  const ModelCosts costs = SmallModel(4);
  const Stages two = {{0, 1}, {2, 4}};
  auto placed = [&](const Stages& stages, int devices, int micro_batches) {
    return SimulatePlacedBaseline(Baseline::k1f1b, costs, stages, devices,
                                  micro_batches)
        .status();
  };
  EXPECT_TRUE(placed(two, 2, 1).ok());
  EXPECT_EQ(placed(two, 0, 1).message(), "0 devices: expected 1 to 64");
  EXPECT_EQ(placed(two, 2, 0).message(), "0 micro-batches: expected 1 to 4096");
  EXPECT_EQ(placed(two, 1, 1).message(), "2 stages on 1 devices");
  EXPECT_EQ(placed({{0, 1}, {2, 3}}, 2, 1).message(),
            "stages of 4 layers for a model of 5");
  EXPECT_EQ(placed({{0, 1}, {3, 4}}, 2, 1).message(),
            "a stage [3,4] after layer 1");
  Plan plan = TwoByTwo();
  plan.forward.pop_back();
  EXPECT_FALSE(SimulateRoundpipe(costs, plan, 2, 2).ok());
  plan.forward = {{0, 4}};
  plan.fused = false;
  EXPECT_FALSE(SimulateRoundpipe(costs, plan, 2, 2).ok());
}

}  // namespace
}  // namespace roundhouse
