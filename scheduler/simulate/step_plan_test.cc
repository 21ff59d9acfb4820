#include "scheduler/simulate/step_plan.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/simulate/test_costs.h"

namespace roundhouse {
namespace {

// Four blocks and a head: two forward slots, head and block 3 fused, two
// backward slots.
Plan Stages() {
  Plan plan;
  plan.fused = true;
  plan.forward = {{0, 1}, {2, 2}};
  plan.backward = {{3, 4}, {1, 2}, {0, 0}};
  return plan;
}

TEST(StepPlanTest, WidthsCutTheMicroBatchesAtGroups) {
  const StepPlan plan = UniformPlan(Stages(), {1, 3, 8}, 6, 4);
  ASSERT_EQ(plan.slot_count(), 5);
  // Groups of 2, 2, 1, 1 micro-batches.
  EXPECT_EQ(plan.shares[1], (std::vector<IndexRange>{{0, 6}}));
  EXPECT_EQ(plan.shares[2], (std::vector<IndexRange>{{0, 4}, {4, 5}, {5, 6}}));
  EXPECT_EQ(plan.shares[3].size(), 4u);
  EXPECT_EQ(CheckStepPlan(plan, 5, 6, 4), absl::OkStatus());
  EXPECT_EQ(ToString(plan),
            "forward [0,1] x1 [2,2] x1 fused [3,4] x3 backward [1,2] x4 [0,0] "
            "x4");
}

TEST(StepPlanTest, SlowDevicesGetSmallerShares) {
  const StepPlan plan =
      ProportionalPlan(Stages(), {2, 3, 4}, 7, 7, {1, 0.5, 1, 0.01});
  EXPECT_EQ(plan.shares[0], (std::vector<IndexRange>{{0, 4}, {4, 7}}));
  EXPECT_EQ(plan.shares[2], (std::vector<IndexRange>{{0, 3}, {3, 6}, {6, 7}}));
  // None for the fourth.
  EXPECT_EQ(plan.shares[3].size(), 3u);
  EXPECT_EQ(CheckStepPlan(plan, 5, 7, 4), absl::OkStatus());
}

TEST(StepPlanTest, PartsSendOneSumASubtree) {
  StepPlan plan = UniformPlan(Stages(), {2, 2, 2}, 8, 8);
  plan.shares[3] = {{0, 3}, {3, 8}};
  const std::vector<Part> parts = PartsOf(plan, 8);
  ASSERT_EQ(parts.size(), 10u);
  EXPECT_EQ(parts[0].pass, SlotPass::kForward);
  EXPECT_EQ(parts[0].contributions, 0);
  EXPECT_EQ(parts[5].pass, SlotPass::kFused);
  EXPECT_EQ(parts[5].layers, (LayerRange{3, 4}));
  EXPECT_EQ(parts[5].micro_batches, (IndexRange{4, 8}));
  EXPECT_EQ(parts[5].contributions, 1);
  // 0-1 and 2; 3 and 4-7.
  EXPECT_EQ(parts[6].groups, 3);
  EXPECT_EQ(parts[6].contributions, 2);
  EXPECT_EQ(parts[7].groups, 5);
  EXPECT_EQ(parts[7].contributions, 2);
}

TEST(StepPlanTest, APartsTimeFollowsItsPass) {
  const ModelCosts costs = SmallModel(4);
  const auto parts = PartsOf(UniformPlan(Stages(), {1, 1, 1}, 2, 1), 2);
  EXPECT_EQ(PartNs(parts[0], costs), 2 * 2 * 1'000'000);
  // Block 3 and the head: no recompute.
  EXPECT_EQ(PartNs(parts[2], costs), 2 * 10'000'000);
  EXPECT_EQ(PartNs(parts[3], costs), 2 * 2 * 4'000'000 - 2 * 2 * 1'000'000);
}

TEST(StepPlanTest, WrongPlansAreNamed) {
  const StepPlan good = UniformPlan(Stages(), {2, 2, 2}, 6, 4);
  auto message = [](const StepPlan& plan, int devices = 4) {
    return std::string(CheckStepPlan(plan, 5, 6, devices).message());
  };
  EXPECT_EQ(message(good), "");
  EXPECT_EQ(message(good, 1), "slot 0 has 2 parts for 1 devices");
  StepPlan plan = good;
  plan.stages.forward.pop_back();
  EXPECT_NE(message(plan), "");
  plan = good;
  plan.stages.fused = false;
  plan.stages.forward.push_back({3, 4});
  EXPECT_EQ(message(plan), "the plan has no fused stage");
  plan = good;
  plan.groups = 0;
  EXPECT_EQ(message(plan), "6 micro-batches in 0 groups");
  plan = good;
  plan.look_ahead = 0;
  EXPECT_EQ(message(plan), "look_ahead is 0");
  plan = good;
  plan.shares.pop_back();
  EXPECT_EQ(message(plan), "shares of 4 slots of 5");
  const char not_next[] =
      "slot 3 part 1 has micro-batches 4..5: not the next whole groups";
  plan = good;
  plan.shares[3] = {{0, 2}, {4, 6}};
  EXPECT_EQ(message(plan), not_next);
  plan.shares[3] = {{0, 1}, {1, 6}};  // inside the first group
  EXPECT_EQ(message(plan),
            "slot 3 part 0 has micro-batches 0..0: not the next whole groups");
  plan.shares[3] = {{0, 4}, {4, 4}, {4, 6}};
  EXPECT_NE(message(plan), "");
  plan.shares[3] = {{0, 4}};
  EXPECT_EQ(message(plan), "slot 3 runs 4 of 6 micro-batches");
}

}  // namespace
}  // namespace roundhouse
