#include "scheduler/simulate/step_simulator.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/test_costs.h"
#include "scheduler/simulate/checker.h"

namespace roundhouse {
namespace {

constexpr int64_t kMs = 1'000'000;

Machine Devices(int count) {
  Machine machine;
  machine.devices.resize(count);
  return machine;
}

absl::Status Check(const Schedule& schedule, const ModelCosts& costs,
                   const Machine& machine, int micro_batches,
                   Contributions contributions) {
  CheckOptions options;
  options.machine = machine;
  options.micro_batches = micro_batches;
  return CheckStepSchedule(schedule, costs, options, contributions);
}

// Everything by hand: SmallModel's block is 1 ms forward, 2 backward, 1 on a
// link; its head 3, 4 and 2 on a link; activations are 0.1 ms.
TEST(StepSimulatorTest, OneDeviceOneBlockOneMicroBatch) {
  const ModelCosts costs = SmallModel(1);
  const auto schedule = SimulateStep(
      costs, Devices(1), UniformPlan(BlockByBlock(1), {1, 1, 1}, 1, 1), 1, {});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(Check(*schedule, costs, Devices(1), 1, Contributions::kModelDtype),
            absl::OkStatus());
  // 0.1 input, 1 weights; the head's weights follow them; its input goes first
  // at a chunk's end, and the saved input, so that they are up at 3.3 and the
  // head runs to 10.3.  Recompute to 11.3; the gradient is up by 10.5.
  // Backward to 13.3; block's gradient 1, and its reduction 21 MB read and 42
  // written at 200 GB/s, 0.315, of which the embedding's gradient, 0.1 on the
  // link, takes 2.1 MB: 0.0105.
  EXPECT_NEAR(static_cast<double>(schedule->MakespanNs()), 14'625'500, 3);
  EXPECT_EQ(schedule->BusyNs(), costs.MicroBatchNs());
}

TEST(StepSimulatorTest, TheNextWeightsGoUpUnderTheRunningPart) {
  ModelCosts costs = SmallModel(6);
  costs.hop_ns = 0;
  const auto schedule = SimulateStep(
      costs, Devices(1), UniformPlan(BlockByBlock(6), {1, 1, 1}, 4, 1), 4, {});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  // Only the first upload, the last download and its reduction show.
  EXPECT_EQ(schedule->MakespanNs(),
            4 * costs.MicroBatchNs() + kMs + kMs + 315'000);
}

// A stage's second block is needed a millisecond after its first.
TEST(StepSimulatorTest, ComputeWaitsPerLayer) {
  ModelCosts costs = SmallModel(2);
  costs.hop_ns = 0;
  Plan plan;
  plan.fused = true;
  plan.forward = {{0, 1}};
  plan.backward = {{2, 2}, {0, 1}};
  const auto schedule = SimulateStep(costs, Devices(1),
                                     UniformPlan(plan, {1, 1, 1}, 1, 1), 1, {});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  const Interval* second = nullptr;
  for (const Interval& interval : schedule->intervals) {
    if (interval.kind == WorkKind::kForward && interval.layer_begin == 1) {
      second = &interval;
    }
  }
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->start_ns, 2 * kMs);
}

// The head's weights are up at 4 ms and it runs to 11, the blocks' first
// backward to 15.  Of the last micro-batch the head's sum goes down from 24 on,
// block 1's from 26, block 0's from 28.
TEST(StepSimulatorTest, AFusedSlotGoesLayerByLayer) {
  ModelCosts costs = SmallModel(2);
  costs.hop_ns = 0;
  Plan plan;
  plan.fused = true;
  plan.backward = {{0, 2}};
  const StepPlan one_stage = UniformPlan(plan, {1, 1, 1}, 2, 1);
  StepOptions options;
  const auto whole = SimulateStep(costs, Devices(1), one_stage, 2, options);
  options.fused = FusedSlots::kByLayer;
  const auto by_layer = SimulateStep(costs, Devices(1), one_stage, 2, options);
  ASSERT_TRUE(whole.ok() && by_layer.ok());
  // All up at 4, two micro-batches of 13, all sums down 4 later.
  EXPECT_EQ(whole->MakespanNs(), 34 * kMs + 315'000);
  EXPECT_EQ(by_layer->MakespanNs(), 29 * kMs + 315'000);
  for (const auto& schedule : {whole, by_layer}) {
    EXPECT_EQ(
        Check(*schedule, costs, Devices(1), 2, Contributions::kModelDtype),
        absl::OkStatus());
  }
}

// In between it is what it was.
TEST(StepSimulatorTest, AFusedSlotsOtherMicroBatchesAreWhole) {
  const ModelCosts costs = SmallModel(2);
  Plan plan;
  plan.fused = true;
  plan.backward = {{0, 2}};
  StepOptions options;
  options.fused = FusedSlots::kByLayer;
  const auto schedule = SimulateStep(
      costs, Devices(1), UniformPlan(plan, {1, 1, 1}, 4, 1), 4, options);
  ASSERT_TRUE(schedule.ok());
  std::vector<int> whole;
  for (const Interval& interval : schedule->intervals) {
    if (interval.kind == WorkKind::kFused) {
      whole.push_back(interval.micro_batch);
    }
  }
  EXPECT_EQ(whole, (std::vector<int>{1, 2}));
}

// Both devices upload at once; host memory halves their rate.
TEST(StepSimulatorTest, HostMemoryIsShared) {
  ModelCosts costs = SmallModel(1);
  costs.hop_ns = 0;
  Machine machine = Devices(2);
  machine.host_rate = 21;
  const auto schedule = SimulateStep(
      costs, machine, UniformPlan(BlockByBlock(1), {2, 2, 2}, 2, 2), 2, {});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  for (const Interval& interval : schedule->intervals) {
    if (interval.kind == WorkKind::kForward) {
      EXPECT_EQ(interval.start_ns, 2 * kMs);
    }
  }
  EXPECT_EQ(Check(*schedule, costs, machine, 2, Contributions::kModelDtype),
            absl::OkStatus());
}

TEST(StepSimulatorTest, LinksMayHaveTheirRateToThemselves) {
  ModelCosts costs = SmallModel(1);
  costs.hop_ns = 0;
  Machine machine = Devices(2);
  machine.host_rate = 21;
  machine.links_share_host_rate = false;
  const auto schedule = SimulateStep(
      costs, machine, UniformPlan(BlockByBlock(1), {2, 2, 2}, 2, 2), 2, {});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  for (const Interval& interval : schedule->intervals) {
    if (interval.kind == WorkKind::kForward) {
      EXPECT_EQ(interval.start_ns, kMs);
    }
  }
  EXPECT_EQ(Check(*schedule, costs, machine, 2, Contributions::kModelDtype),
            absl::OkStatus());
  machine.links_share_host_rate = true;
  EXPECT_FALSE(
      Check(*schedule, costs, machine, 2, Contributions::kModelDtype).ok());
}

// A bulk upload of 20 ms is under way when the activation comes.
TEST(StepSimulatorTest, AnActivationWaitsForAChunkAtMost) {
  ModelCosts costs = SmallModel(3);
  costs.layer_bytes = 420'000'000;
  StepOptions options;
  options.chunk_bytes = 2'100'000;  // 0.1 ms
  const StepPlan plan = UniformPlan(BlockByBlock(3), {1, 1, 1}, 2, 1);
  const auto schedule = SimulateStep(costs, Devices(2), plan, 2, options);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  int64_t down_ns = 0, up_ns = 0;
  for (const Interval& interval : schedule->intervals) {
    if (interval.kind != WorkKind::kActivations || interval.layer_begin != 1 ||
        interval.direction != PassDirection::kForward ||
        interval.micro_batch != 0) {
      continue;
    }
    const bool down = interval.resource.type == ResourceType::kD2h;
    if (down) down_ns = interval.end_ns;
    if (!down && up_ns == 0) up_ns = interval.start_ns;
  }
  EXPECT_GE(up_ns, down_ns);
  EXPECT_LE(up_ns, down_ns + 100'001);
}

TEST(StepSimulatorTest, WiderContributionsMoveTwiceTheBytes) {
  const ModelCosts costs = SmallModel(3);
  EXPECT_EQ(ContributionBytes(costs, 0, Contributions::kModelDtype),
            21'000'000);
  EXPECT_EQ(ContributionBytes(costs, 0, Contributions::kFp32), 42'000'000);
  EXPECT_EQ(
      ReduceBytes(costs, 0, Contributions::kModelDtype, Updates::kAsReduced, 4),
      4 * 21'000'000 + 42'000'000);
  StepOptions options;
  options.contributions = Contributions::kFp32;
  const auto schedule =
      SimulateStep(costs, Devices(2),
                   UniformPlan(BlockByBlock(3), {2, 2, 2}, 4, 4), 4, options);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(Check(*schedule, costs, Devices(2), 4, Contributions::kFp32),
            absl::OkStatus());
  int64_t moved = 0;
  for (const Interval& interval : schedule->intervals) {
    if (interval.kind == WorkKind::kGradients) moved += interval.bytes;
  }
  // Two parts each of three blocks and the head.
  EXPECT_EQ(moved, 2 * 2 * (3 * 21'000'000 + 42'000'000));
}

// Nothing trains but the first block's adapters: no other gradient moves.
TEST(StepSimulatorTest, FrozenLayersSendNoGradients) {
  ModelCosts costs = SmallModel(3);
  costs.layer_gradient_bytes = costs.head_gradient_bytes = 0;
  const auto schedule = SimulateStep(
      costs, Devices(2), UniformPlan(BlockByBlock(3), {2, 1, 2}, 4, 4), 4, {});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  for (const Interval& interval : schedule->intervals) {
    EXPECT_NE(interval.kind, WorkKind::kGradients);
    EXPECT_NE(interval.kind, WorkKind::kReduce);
  }
  EXPECT_EQ(Check(*schedule, costs, Devices(2), 4, Contributions::kModelDtype),
            absl::OkStatus());
}

TEST(StepSimulatorTest, WhatIsKeptOfIntervalsChangesNoTime) {
  const ModelCosts costs = SmallModel(5);
  Machine machine = Devices(3);
  machine.host_rate = 40;
  const StepPlan plan = UniformPlan(BlockByBlock(5), {2, 3, 3}, 7, 7);
  StepOptions options;
  const auto split = SimulateStep(costs, machine, plan, 7, options);
  options.intervals = Intervals::kWhole;
  const auto mean = SimulateStep(costs, machine, plan, 7, options);
  EXPECT_EQ(split->MakespanNs(), mean->MakespanNs());
  EXPECT_EQ(split->BusyNs(), mean->BusyNs());
  EXPECT_GT(split->intervals.size(), mean->intervals.size());
  options.intervals = Intervals::kNone;
  const auto ends = SimulateStep(costs, machine, plan, 7, options);
  EXPECT_TRUE(ends->intervals.empty());
  int64_t computed_ns = 0;
  for (const Interval& interval : split->intervals) {
    if (IsCompute(interval.kind)) {
      computed_ns = std::max(computed_ns, interval.end_ns);
    }
  }
  for (const Schedule& schedule : {*split, *mean, *ends}) {
    EXPECT_EQ(schedule.end_ns, split->MakespanNs());
    EXPECT_EQ(schedule.computed_ns, std::vector<int64_t>{computed_ns});
  }
}

Plan RandomStages(std::mt19937_64& random, int layers) {
  auto cut = [&](int end) {
    std::vector<LayerRange> stages;
    for (int first = 0; first < end;) {
      const int count = 1 + static_cast<int>(random() % 3);
      stages.push_back({first, std::min(first + count, end) - 1});
      first = stages.back().last + 1;
    }
    return stages;
  };
  Plan plan;
  plan.fused = true;
  const int first = static_cast<int>(random() % (layers + 1));
  plan.forward = cut(first);
  plan.backward = cut(first);
  plan.backward.push_back({first, layers});
  std::reverse(plan.backward.begin(), plan.backward.end());
  if (random() % 2 == 0) plan.saving.every = 2 + static_cast<int>(random() % 3);
  if (random() % 4 == 0) plan.saving.groups = 1;
  return plan;
}

// Whatever the plan and the machine: no deadlock, and the checker agrees.
TEST(StepSimulatorTest, RandomPlansAreSchedules) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const ModelCosts costs = SmallModel(1 + static_cast<int>(random() % 9));
    const int device_count = 1 + static_cast<int>(random() % 8);
    const int micro_batches = 1 + static_cast<int>(random() % 12);
    const int groups = 1 + static_cast<int>(random() % micro_batches);
    Machine machine = Devices(device_count);
    machine.host_rate = 5.0 * static_cast<double>(1 + random() % 40);
    for (SimulatedDevice& device : machine.devices) {
      if (random() % 3 == 0) device.speed = 0.5;
    }
    auto width = [&] { return 1 + static_cast<int>(random() % device_count); };
    const StepPlan plan =
        UniformPlan(RandomStages(random, costs.layers),
                    {width(), width(), width()}, micro_batches, groups);
    StepOptions options;
    options.chunk_bytes = 1 + static_cast<int64_t>(random() % 30'000'000);
    if (random() % 2 == 0) options.contributions = Contributions::kFp32;
    if (random() % 2 == 0) options.fused = FusedSlots::kByLayer;
    const auto schedule =
        SimulateStep(costs, machine, plan, micro_batches, options);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    ASSERT_EQ(
        Check(*schedule, costs, machine, micro_batches, options.contributions),
        absl::OkStatus())
        << ToString(plan);
  }
}

TEST(StepSimulatorTest, AWrongPlanIsRefused) {
  const StepPlan plan = UniformPlan(BlockByBlock(3), {2, 2, 2}, 4, 4);
  EXPECT_FALSE(SimulateStep(SmallModel(3), Devices(1), plan, 4, {}).ok());
  EXPECT_FALSE(SimulateStep(SmallModel(4), Devices(2), plan, 4, {}).ok());
  EXPECT_FALSE(SimulateStep(SmallModel(3), Devices(2), plan, 5, {}).ok());
}

}  // namespace
}  // namespace roundhouse
