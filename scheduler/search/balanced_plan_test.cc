#include "scheduler/search/balanced_plan.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"
#include "scheduler/simulate/device_memory.h"
#include "scheduler/simulate/part_feed.h"

namespace roundhouse {
namespace {

// Two forward stages, the rest fused.
Plan TwoStages() {
  Plan plan;
  plan.fused = true;
  plan.forward = {{0, 0}, {1, 1}};
  plan.backward = {{2, 4}, {1, 1}, {0, 0}};
  return plan;
}

TEST(BalancedPlanTest, EqualDevicesGetEqualShares) {
  Machine machine;
  machine.devices.resize(4);
  const StepPlan plan =
      BalancedPlan(TwoStages(), {4, 2, 4, 4, 4}, 8, 8, SmallModel(4), machine);
  EXPECT_EQ(CheckStepPlan(plan, 5, 8, 4), absl::OkStatus());
  EXPECT_EQ(plan.shares[0].size(), 4u);
  EXPECT_EQ(plan.shares[0][0].size(), 2);
  EXPECT_EQ(plan.shares[1].size(), 2u);
}

TEST(BalancedPlanTest, ASlowDeviceGetsLess) {
  Machine machine;
  machine.devices.resize(2);
  machine.devices[1].speed = 0.5;
  const StepPlan plan =
      BalancedPlan(TwoStages(), {2, 2, 2, 2, 2}, 9, 9, SmallModel(4), machine);
  EXPECT_EQ(plan.shares[0][0].size(), 6);
  EXPECT_EQ(plan.shares[0][1].size(), 3);
}

// Whoever waited in one slot gets more of the next.
TEST(BalancedPlanTest, WorkEvensOutOverSlots) {
  Machine machine;
  machine.devices.resize(3);
  const ModelCosts costs = SmallModel(4);
  const StepPlan plan =
      BalancedPlan(TwoStages(), {2, 2, 3, 3, 3}, 6, 6, costs, machine);
  const auto parts = PartsOf(plan, 6);
  const auto devices = AssignDevices(parts, costs, machine);
  std::vector<int64_t> work_ns(3);
  for (size_t i = 0; i < parts.size(); ++i) {
    work_ns[devices[i]] += PartNs(parts[i], costs);
  }
  const auto [least, most] =
      std::minmax_element(work_ns.begin(), work_ns.end());
  // No more than a micro-batch of the last slot apart.
  EXPECT_LE(*most - *least, 4'000'000);
}

TEST(BalancedPlanTest, ASmallDeviceGetsWhatItHolds) {
  ModelCosts costs = SmallModel(4);
  costs.layer_gradient_bytes = 100'000'000;
  Machine machine;
  machine.devices.resize(2);
  // One group: two weights, a sum and one going down; two groups need another.
  Part one;
  one.kind = SlotKind::kBackward;
  one.layers = {0, 0};
  one.groups = one.contributions = 1;
  machine.devices[1].memory_bytes = PartPeakBytes(one, costs);
  Plan stages = TwoStages();
  stages.forward = {{0, 0}, {1, 1}, {2, 2}, {3, 3}};
  stages.backward = {{4, 4}, {3, 3}, {2, 2}, {1, 1}, {0, 0}};
  const StepPlan plan =
      BalancedPlan(stages, std::vector<int>(9, 2), 8, 8, costs, machine);
  EXPECT_EQ(plan.shares.back().at(1).size(), 1);
  EXPECT_EQ(plan.shares[0].at(1).size(), 4);
}

TEST(BalancedPlanTest, RandomPlansAreValid) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
    Machine machine;
    machine.devices.resize(1 + below(8));
    for (SimulatedDevice& device : machine.devices) {
      device.speed = 0.25 * (1 + below(8));
      device.memory_bytes = 100'000'000 * (1 + below(20));
    }
    const int devices = machine.device_count();
    const int micro_batches = 1 + below(20);
    std::vector<int> widths;
    for (int i = 0; i < 5; ++i) widths.push_back(1 + below(devices));
    const StepPlan plan =
        BalancedPlan(TwoStages(), widths, micro_batches,
                     1 + below(micro_batches), SmallModel(4), machine);
    ASSERT_EQ(CheckStepPlan(plan, 5, micro_batches, devices), absl::OkStatus());
  }
}

}  // namespace
}  // namespace roundhouse
