#include "scheduler/plan/plan.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

using ::testing::HasSubstr;

Plan FusedPlan() {
  Plan plan;
  plan.forward = {{0, 1}, {2, 4}};
  plan.backward = {{5, 6}, {2, 4}, {0, 1}};
  plan.fused = true;
  return plan;
}

Plan TrainingPlan() {
  Plan plan;
  plan.forward = {{0, 3}, {4, 6}};
  plan.backward = {{5, 6}, {0, 4}};
  return plan;
}

void ExpectBad(const Plan& plan, int layer_count, const std::string& message) {
  const absl::Status status = CheckPlan(plan, layer_count);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(CheckPlanTest, AcceptsEachKind) {
  EXPECT_TRUE(CheckPlan(FusedPlan(), 7).ok());
  EXPECT_TRUE(CheckPlan(TrainingPlan(), 7).ok());
  Plan inference = TrainingPlan();
  inference.backward.clear();
  EXPECT_TRUE(CheckPlan(inference, 7).ok());
}

TEST(CheckPlanTest, AcceptsEverythingFused) {
  Plan plan;
  plan.backward = {{0, 2}};
  plan.fused = true;
  EXPECT_TRUE(CheckPlan(plan, 3).ok());
}

TEST(CheckPlanTest, RefusesAFusedStageThatIsMissingOrAlsoInForward) {
  Plan missing = FusedPlan();
  missing.backward.clear();
  ExpectBad(missing, 7, "plan.backward is empty");
  Plan twice = FusedPlan();
  twice.forward.push_back({5, 6});
  ExpectBad(twice, 7, "plan.forward covers 7 layers: expected 5");
}

TEST(CheckPlanTest, RefusesForwardGapsOverlapsAndOrder) {
  Plan gap = FusedPlan();
  gap.forward[1].first = 3;
  ExpectBad(gap, 7, "plan.forward[1] starts at layer 3: expected layer 2");
  Plan overlap = FusedPlan();
  overlap.forward[0].last = 2;
  ExpectBad(overlap, 7, "plan.forward[1] starts at layer 2: expected layer 3");
  Plan short_of_one = FusedPlan();
  short_of_one.forward[1].last = 3;
  ExpectBad(short_of_one, 7, "plan.forward covers 4 layers: expected 5");
  Plan swapped = FusedPlan();
  std::swap(swapped.forward[0], swapped.forward[1]);
  ExpectBad(swapped, 7, "plan.forward[0] starts at layer 2: expected layer 0");
}

TEST(CheckPlanTest, ASplitGivesEverySlotItsParts) {
  Plan plan = FusedPlan();
  plan.split = {{1}, {1, 1}, {3, 5}, {1}, {2, 2, 2}};
  EXPECT_TRUE(CheckPlan(plan, 7).ok());
  EXPECT_EQ(ToString(plan),
            "forward [0,1] [2,4] x2 backward fused [5,6] 3+5 [2,4] [0,1] x3");
  plan.split.pop_back();
  ExpectBad(plan, 7, "plan.split has 4 slots: expected 5");
  plan.split.push_back({});
  ExpectBad(plan, 7, "plan.split[4] is []: a slot has parts of at least 1");
  plan.split[4] = {2, 0};
  ExpectBad(plan, 7, "plan.split[4] is [2,0]");
}

TEST(CheckPlanTest, RefusesForwardOfTrainingThatStopsShort) {
  Plan plan = TrainingPlan();
  plan.forward.pop_back();
  ExpectBad(plan, 7, "plan.forward covers 4 layers: expected 7");
}

TEST(CheckPlanTest, RefusesBackwardGapsOverlapsAndOrder) {
  Plan gap = FusedPlan();
  gap.backward[1].last = 3;
  ExpectBad(gap, 7, "plan.backward[1] ends at layer 3: expected layer 4");
  Plan overlap = FusedPlan();
  overlap.backward[2].last = 2;
  ExpectBad(overlap, 7, "plan.backward[2] ends at layer 2: expected layer 1");
  Plan rest = FusedPlan();
  rest.backward.pop_back();
  ExpectBad(rest, 7, "plan.backward leaves out layers 0..1");
  Plan swapped = TrainingPlan();
  std::swap(swapped.backward[0], swapped.backward[1]);
  ExpectBad(swapped, 7, "plan.backward[0] ends at layer 4: expected layer 6");
  Plan more = TrainingPlan();
  more.backward.push_back({0, 0});
  ExpectBad(more, 7, "plan.backward[2] ends at layer 0: every layer is");
}

TEST(CheckPlanTest, RefusesRangesOutsideTheLayers) {
  Plan empty = TrainingPlan();
  empty.forward[0] = {0, -1};
  ExpectBad(empty, 7, "plan.forward[0] is [0,-1]");
  Plan negative = TrainingPlan();
  negative.backward[1].first = -1;
  ExpectBad(negative, 7, "plan.backward[1] is [-1,4]");
  Plan beyond = TrainingPlan();
  beyond.backward[0].last = 7;
  ExpectBad(beyond, 7, "plan.backward[0] is [5,7]");
  Plan huge = TrainingPlan();
  huge.forward[1].last = 2147483647;
  ExpectBad(huge, 7, "plan.forward[1] is [4,2147483647]");
}

TEST(CheckPlanTest, RefusesLayerCountsOutsideTheLimit) {
  ExpectBad(TrainingPlan(), 0, "a plan for 0 layers");
  Plan longest;
  longest.forward = {{0, kMaxPlanLayers - 1}};
  EXPECT_TRUE(CheckPlan(longest, kMaxPlanLayers).ok());
  longest.forward = {{0, kMaxPlanLayers}};
  ExpectBad(longest, kMaxPlanLayers + 1, "a plan for 513 layers");
}

TEST(PlanTest, ToStringShowsStagesInOrder) {
  EXPECT_EQ(ToString(FusedPlan()),
            "forward [0,1] [2,4] backward fused [5,6] [2,4] [0,1]");
  EXPECT_EQ(ToString(TrainingPlan()),
            "forward [0,3] [4,6] backward [5,6] [0,4]");
}

// What runs again, each with the backward stage before which it does.
std::vector<std::pair<LayerRange, int>> AgainOf(const Plan& plan) {
  std::vector<std::pair<LayerRange, int>> again;
  for (const PlanSlot& slot : SlotsOf(plan)) {
    if (slot.again) again.emplace_back(slot.layers, slot.stage);
  }
  return again;
}

TEST(SlotsTest, AreInTheOrderInWhichTheyRun) {
  Plan plan = BlockByBlock(5);
  EXPECT_EQ(plan.slot_count(), 11);
  plan.saving.every = 2;
  // The group of layer 4 alone keeps its input.
  EXPECT_EQ(ToString(plan),
            "forward [0,0] [1,1] [2,2] [3,3] [4,4] backward fused [5,5] [4,4] "
            "[3,3] [2,2] [1,1] [0,0] again [2,2] [0,0]");
  EXPECT_EQ(plan.slot_count(), 13);
  const std::vector<PlanSlot> slots = SlotsOf(plan);
  for (int stage = 0; stage < 6; ++stage) {
    const int slot = BackwardSlotWith(plan, plan.backward[stage].first);
    EXPECT_EQ(slots[slot].layers, plan.backward[stage]);
    EXPECT_EQ(slots[slot].stage, stage);
    EXPECT_EQ(slots[slot].kind,
              stage == 0 ? SlotKind::kFused : SlotKind::kBackward);
  }
}

TEST(SlotsTest, WhatRunsAgainIsNoLongerThanAForwardStage) {
  Plan plan = BlockByBlock(8);
  plan.saving.every = 4;
  using Again = std::vector<std::pair<LayerRange, int>>;
  EXPECT_EQ(AgainOf(plan), (Again{{{0, 0}, 5}, {{1, 1}, 5}, {{2, 2}, 5}}));
  plan.forward = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  EXPECT_EQ(AgainOf(plan), (Again{{{0, 1}, 5}, {{2, 2}, 5}}));
  plan.forward = {{0, 7}};
  EXPECT_EQ(AgainOf(plan), (Again{{{0, 2}, 5}}));
  // Groups are of stages, of however many layers.
  plan.backward = {{8, 8}, {6, 7}, {3, 5}, {1, 2}, {0, 0}};
  plan.saving.every = 2;
  EXPECT_EQ(AgainOf(plan), (Again{{{0, 0}, 3}}));
}

TEST(SlotsTest, EarlierGroupsMayKeepAll) {
  Plan plan = BlockByBlock(8);
  plan.saving.every = 2;
  using Again = std::vector<std::pair<LayerRange, int>>;
  EXPECT_EQ(AgainOf(plan), (Again{{{4, 4}, 3}, {{2, 2}, 5}, {{0, 0}, 7}}));
  EXPECT_EQ(CountInputs(plan), (InputCounts{8, 5}));
  plan.saving.groups = 2;
  EXPECT_EQ(AgainOf(plan), (Again{{{2, 2}, 5}, {{0, 0}, 7}}));
  EXPECT_EQ(CountInputs(plan), (InputCounts{8, 6}));
  plan.saving.every = 3;
  EXPECT_EQ(CountInputs(plan), (InputCounts{8, 4}));
  plan.saving.groups = 1;
  EXPECT_EQ(CountInputs(plan), (InputCounts{8, 6}));
  plan.saving.every = 1;
  EXPECT_EQ(CountInputs(plan), (InputCounts{8, 8}));
}

TEST(SlotsTest, OneGroupRunsNothingAgain) {
  Plan plan = BlockByBlock(3);
  for (const int every : {1, 3, 4, 100}) {
    plan.saving.every = every;
    EXPECT_TRUE(AgainOf(plan).empty()) << every;
    EXPECT_TRUE(CheckPlan(plan, 4).ok());
  }
  plan.saving.every = 0;
  ExpectBad(plan, 4, "plan.saving.every is 0");
  Plan training = TrainingPlan();
  training.saving.every = 2;
  ExpectBad(training, 7, "plan.saving.every is 2");
}

TEST(PlanTest, LayerRangeCountsBothEnds) {
  const LayerRange range{2, 4};
  EXPECT_EQ(range.layer_count(), 3);
  EXPECT_FALSE(range.Contains(1));
  EXPECT_TRUE(range.Contains(2));
  EXPECT_TRUE(range.Contains(4));
  EXPECT_FALSE(range.Contains(5));
}

}  // namespace
}  // namespace roundhouse
