#include "scheduler/search/step_search.h"

#include <fstream>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"
#include "scheduler/simulate/checker.h"

namespace roundhouse {
namespace {

std::vector<ModelCosts> Models(const std::string& name = "bubble_inputs.csv") {
  std::ifstream file("scheduler/testdata/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return *ParseModelCosts(name, text.str());
}

Machine Devices(int count) {
  Machine machine;
  machine.devices.resize(count);
  return machine;
}

absl::Status Check(const SearchResult& result, const ModelCosts& costs,
                   const Machine& machine, int micro_batches,
                   FusedSlots fused = FusedSlots::kWhole) {
  StepOptions step;
  step.fused = fused;
  const auto schedule =
      SimulateStep(costs, machine, result.plan, micro_batches, step);
  EXPECT_EQ(schedule->MakespanNs(), result.step_ns);
  CheckOptions options;
  options.machine = machine;
  options.micro_batches = micro_batches;
  return CheckStepSchedule(*schedule, costs, options,
                           Contributions::kModelDtype);
}

TEST(StepSearchTest, AShapeIsAPlan) {
  PlanShape shape;
  shape.fused_layers = 1;
  shape.forward_layers = 2;
  shape.backward_layers = 3;
  shape.widths = {1, 3, 2};
  shape.first_widths = {4, 2};
  shape.last_widths = {3, 1};
  shape.groups = 4;
  shape.look_ahead = 2;
  const StepPlan plan = ShapePlan(shape, SmallModel(8), Devices(4), 8);
  EXPECT_EQ(ToString(plan),
            "forward [0,1] x4 [2,3] x2 [4,5] x1 [6,6] x1 fused [7,8] x3 "
            "backward [6,6] x2 [3,5] x1 [0,2] x3");
  EXPECT_EQ(plan.look_ahead, 2);
  EXPECT_EQ(CheckStepPlan(plan, 9, 8, 4), absl::OkStatus());
}

TEST(StepSearchTest, ASlowDevicesShareOfAForwardSlotIsSmall) {
  Machine machine = Devices(4);
  machine.devices[1].speed = 0.25;
  PlanShape shape;
  shape.widths = {3, 4, 4};
  shape.groups = 9;
  shape.slow_share = true;
  const StepPlan plan = ShapePlan(shape, SmallModel(4), machine, 18);
  ASSERT_EQ(CheckStepPlan(plan, 5, 18, 4), absl::OkStatus());
  for (int slot = 0; slot < 4; ++slot) {
    EXPECT_EQ(plan.shares[slot],
              (std::vector<IndexRange>{{0, 8}, {8, 16}, {16, 18}}));
  }
  // Slots that send sums have equal shares.
  EXPECT_EQ(plan.shares[4],
            (std::vector<IndexRange>{{0, 6}, {6, 10}, {10, 14}, {14, 18}}));
  EXPECT_EQ(plan.shares[5], plan.shares[4]);
}

// Whatever the slot before it: that one's slow share may be left out.
TEST(StepSearchTest, AForwardSlotIsCutByItsOwnWidth) {
  Machine machine = Devices(4);
  machine.devices[1].speed = 0.25;
  PlanShape shape;
  shape.widths = {3, 4, 4};
  shape.groups = 6;
  shape.slow_share = true;
  shape.first_widths = {4};
  const StepPlan plan = ShapePlan(shape, SmallModel(4), machine, 6);
  EXPECT_EQ(plan.shares[0], (std::vector<IndexRange>{{0, 2}, {2, 4}, {4, 6}}));
  EXPECT_EQ(plan.shares[1], (std::vector<IndexRange>{{0, 3}, {3, 5}, {5, 6}}));
}

TEST(StepSearchTest, StagesAtTheEndsHaveLengthsOfTheirOwn) {
  PlanShape shape;
  shape.forward_layers = 3;
  shape.backward_layers = 2;
  shape.first_layers = {1, 2};
  shape.last_layers = {1};
  const StepPlan plan = ShapePlan(shape, SmallModel(8), Devices(1), 1);
  EXPECT_EQ(ToString(plan),
            "forward [0,0] x1 [1,2] x1 [3,5] x1 [6,7] x1 fused [8,8] x1 "
            "backward [7,7] x1 [5,6] x1 [3,4] x1 [1,2] x1 [0,0] x1");
  // Longer than the model.
  shape.first_layers = {5, 5, 5};
  EXPECT_EQ(
      CheckStepPlan(ShapePlan(shape, SmallModel(8), Devices(1), 1), 9, 1, 1),
      absl::OkStatus());
}

TEST(StepSearchTest, SpelledOutItIsTheSamePlan) {
  PlanShape shape;
  shape.fused_layers = 2;
  shape.forward_layers = 3;
  shape.first_layers = {1, 1, 9};
  shape.widths = {2, 4, 1};
  shape.first_widths = {4};
  shape.last_widths = {3, 2};
  shape.groups = 4;
  const PlanShape all = SpelledOut(shape, 8);
  EXPECT_EQ(all.first_layers, (std::vector<int>{1, 1, 4}));
  EXPECT_EQ(all.first_widths, (std::vector<int>{4, 2, 2}));
  EXPECT_EQ(all.last_layers, (std::vector<int>{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(all.last_widths, (std::vector<int>{3, 2, 1, 1, 1, 1}));
  EXPECT_EQ(ToString(ShapePlan(all, SmallModel(8), Devices(4), 8)),
            ToString(ShapePlan(shape, SmallModel(8), Devices(4), 8)));
}

// Groups of 2, 1, 2, 1, 1 micro-batches: three and two of them are 5 and 2
// micro-batches.
TEST(StepSearchTest, SharesCanBeEvenByMicroBatches) {
  PlanShape shape;
  shape.widths = {3, 5, 2};
  shape.groups = 5;
  const auto sizes = [](const std::vector<IndexRange>& shares) {
    std::vector<int64_t> counts;
    for (const IndexRange& share : shares) counts.push_back(share.size());
    return counts;
  };
  const StepPlan by_groups = ShapePlan(shape, SmallModel(1), Devices(8), 7);
  shape.by_micro_batches = true;
  const StepPlan even = ShapePlan(shape, SmallModel(1), Devices(8), 7);
  EXPECT_EQ(sizes(by_groups.shares[0]), (std::vector<int64_t>{3, 3, 1}));
  EXPECT_EQ(sizes(even.shares[0]), (std::vector<int64_t>{3, 2, 2}));
  EXPECT_EQ(sizes(by_groups.shares[2]), (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(sizes(even.shares[2]), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(CheckStepPlan(even, 2, 7, 8), absl::OkStatus());
  // A job can have it.
  EXPECT_EQ(PlanOfRound(PlanOfFullRound(even, 7), 7, 5).shares, even.shares);
}

TEST(StepSearchTest, NothingButTheFusedStageIsAPlan) {
  PlanShape shape;
  shape.fused_layers = 4;
  shape.first_widths = {1, 1};
  shape.last_widths = {1};
  const StepPlan plan = ShapePlan(shape, SmallModel(4), Devices(1), 2);
  EXPECT_EQ(CheckStepPlan(plan, 5, 2, 1), absl::OkStatus());
  EXPECT_EQ(plan.slot_count(), 1);
}

// What the step may lose against all layers forward, recompute and backward on
// evenly busy devices, in per cent.
struct Target {
  int devices = 0;
  int micro_batches = 0;
  std::vector<double> loss_percent;  // per model
};

class StepSearchModelsTest
    : public testing::TestWithParam<std::tuple<std::string, FusedSlots>> {};

INSTANTIATE_TEST_SUITE_P(
    PublishedAndTrueSizes, StepSearchModelsTest,
    testing::Combine(testing::Values("bubble_inputs.csv", "true_sizes.csv"),
                     testing::Values(FusedSlots::kWhole,
                                     FusedSlots::kByLayer)));

TEST_P(StepSearchModelsTest, LoseLittle) {
  const Target targets[] = {{8, 16, {1.5, 2, 4, 1, 2}},
                            {8, 12, {3.9, 3.1, 6.3, 1.4, 2.9}},
                            {7, 16, {1.5, 1.6, 4, 1, 2}}};
  const auto& [inputs, fused] = GetParam();
  const std::vector<ModelCosts> models = Models(inputs);
  SearchOptions options;
  options.fused = fused;
  for (const Target& target : targets) {
    const Machine machine = Devices(target.devices);
    for (size_t i = 0; i < models.size(); ++i) {
      SCOPED_TRACE(testing::Message()
                   << models[i].name << " on " << target.devices << " with "
                   << target.micro_batches);
      const auto result =
          SearchStepPlan(models[i], machine, target.micro_batches, options);
      ASSERT_TRUE(result.ok()) << result.status();
      const double reference_ns =
          static_cast<double>(models[i].MicroBatchNs()) * target.micro_batches /
          target.devices;
      EXPECT_LE(static_cast<double>(result->step_ns),
                reference_ns / (1 - target.loss_percent[i] / 100));
      EXPECT_EQ(Check(*result, models[i], machine, target.micro_batches, fused),
                absl::OkStatus());
      EXPECT_GT(result->ranked, 100);
      EXPECT_LT(result->simulated, result->ranked / 4);
    }
  }
}

// Above all work over all speeds, in per cent, with a card at half the speed;
// the aim is 5 for all (docs/design/measurements.md).
TEST(StepSearchTest, ASlowDeviceTakesWhatItCan) {
  Machine machine = Devices(8);
  machine.devices[7].speed = 0.5;
  const double most_percent[] = {5, 5, 5.8, 5, 5};
  const std::vector<ModelCosts> models = Models();
  for (size_t i = 0; i < models.size(); ++i) {
    SCOPED_TRACE(models[i].name);
    const auto result = SearchStepPlan(models[i], machine, 16, {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_LE(static_cast<double>(result->step_ns),
              (1 + most_percent[i] / 100) *
                  static_cast<double>(models[i].MicroBatchNs()) * 16 / 7.5);
  }
}

// RoundPipe's width and all-wide are two points of the space that is searched.
TEST(StepSearchTest, IsNeverSlowerThanTheEnds) {
  const ModelCosts costs = SmallModel(10);
  for (int devices = 1; devices <= 8; ++devices) {
    const Machine machine = Devices(devices);
    for (const int micro_batches : {1, 3, 8, 12, 16, 24}) {
      SCOPED_TRACE(testing::Message() << devices << " " << micro_batches);
      const auto result = SearchStepPlan(costs, machine, micro_batches, {});
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_EQ(Check(*result, costs, machine, micro_batches),
                absl::OkStatus());
      for (const int width : {1, devices}) {
        PlanShape shape;
        shape.groups = std::min(devices, micro_batches);
        shape.widths = {width, width, width};
        const auto end = SimulateStep(
            costs, machine, ShapePlan(shape, costs, machine, micro_batches),
            micro_batches, {});
        EXPECT_LE(result->step_ns, end->MakespanNs()) << "width " << width;
      }
    }
  }
}

TEST(StepSearchTest, TheSameArgumentsGiveTheSamePlan) {
  const ModelCosts costs = SmallModel(10);
  const auto first = SearchStepPlan(costs, Devices(5), 12, {});
  const auto second = SearchStepPlan(costs, Devices(5), 12, {});
  EXPECT_EQ(first->shape, second->shape);
  EXPECT_EQ(first->step_ns, second->step_ns);
  EXPECT_EQ(first->ranked, second->ranked);
}

// A job's groups decide its bits: plans may not.
TEST(StepSearchTest, GroupsThatAreGivenStay) {
  const ModelCosts costs = SmallModel(10);
  SearchOptions options;
  options.groups = 2;
  options.most_look_ahead = 1;
  const auto result = SearchStepPlan(costs, Devices(4), 8, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->plan.groups, 2);
  EXPECT_EQ(result->plan.look_ahead, 1);
  for (const auto& shares : result->plan.shares) EXPECT_LE(shares.size(), 2u);
  EXPECT_EQ(*SimulatedStepNs(costs, Devices(4), result->plan, 8, options),
            result->step_ns);
}

TEST(StepSearchTest, InputsThatAreNotKeptTakeTime) {
  const ModelCosts costs = SmallModel(12);
  SearchOptions options;
  int64_t all_ns = 0;
  for (const int every : {1, 2, 3}) {
    options.saving.every = every;
    // So that there are groups.
    options.accepts = [](const StepPlan& plan) {
      return plan.stages.backward.size() >= 10;
    };
    const auto result = SearchStepPlan(costs, Devices(4), 8, options);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->plan.stages.saving.every, every);
    EXPECT_EQ(Check(*result, costs, Devices(4), 8), absl::OkStatus());
    if (every == 1) all_ns = result->step_ns;
    EXPECT_GE(result->step_ns, all_ns);
    // A forward pass more of what is a third of the compute, at most.
    EXPECT_LT(static_cast<double>(result->step_ns),
              1.35 * static_cast<double>(all_ns));
  }
}

TEST(StepSearchTest, PlansThatAreNotAcceptedAreNotFound) {
  const ModelCosts costs = SmallModel(10);
  SearchOptions options;
  options.accepts = [](const StepPlan& plan) { return plan.slot_count() <= 5; };
  const auto few = SearchStepPlan(costs, Devices(4), 8, options);
  ASSERT_TRUE(few.ok()) << few.status();
  EXPECT_LE(few->plan.slot_count(), 5);
  EXPECT_GT(SearchStepPlan(costs, Devices(4), 8, {})->plan.slot_count(), 5);
  options.accepts = [](const StepPlan&) { return false; };
  EXPECT_EQ(SearchStepPlan(costs, Devices(4), 8, options).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(StepSearchTest, LessMemoryMeansAShorterTail) {
  ModelCosts costs = SmallModel(10);
  Machine machine = Devices(4);
  const auto large = SearchStepPlan(costs, machine, 8, {});
  for (SimulatedDevice& device : machine.devices) {
    device.memory_bytes = 500'000'000;
  }
  const auto small = SearchStepPlan(costs, machine, 8, {});
  ASSERT_TRUE(large.ok() && small.ok()) << small.status();
  EXPECT_GT(large->shape.fused_layers, small->shape.fused_layers);
  EXPECT_EQ(Check(*small, costs, machine, 8), absl::OkStatus());
}

TEST(StepSearchTest, WhatDoesNotFitIsSaid) {
  Machine machine = Devices(2);
  for (SimulatedDevice& device : machine.devices) {
    device.memory_bytes = 50'000'000;
  }
  const auto status = SearchStepPlan(SmallModel(4), machine, 4, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message().rfind("no plan of small fits: device 0 needs ", 0),
            0u)
      << status;
}

TEST(StepSearchTest, ADeviceThatIsTooSmallStaysIdle) {
  const ModelCosts costs = SmallModel(4);
  Machine machine = Devices(2);
  machine.devices[1].memory_bytes = 50'000'000;
  const auto result = SearchStepPlan(costs, machine, 4, {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Check(*result, costs, machine, 4), absl::OkStatus());
}

TEST(StepSearchTest, WrongCountsAreRefused) {
  EXPECT_FALSE(SearchStepPlan(SmallModel(4), Devices(0), 4, {}).ok());
  EXPECT_FALSE(SearchStepPlan(SmallModel(4), Devices(2), 0, {}).ok());
}

}  // namespace
}  // namespace roundhouse
