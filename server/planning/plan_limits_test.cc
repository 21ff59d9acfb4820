#include "server/planning/plan_limits.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

// Layers 0, 1, 2 and the head.
Plan TestPlan() { return {{{0, 0}, {1, 1}}, {{2, 3}, {1, 1}, {0, 0}}, true}; }

PlanLimitsOptions TestOptions(bool adapters) {
  PlanLimitsOptions options;
  options.model = {TestModel(true), {}, DType::kF32};
  if (adapters) options.model.adapter = TestAdapter();
  options.buffers.micro_batches = 8;
  options.buffers.rows = 2;
  options.buffers.row_tokens = 64;
  options.buffers.hidden_size = options.model.config.hidden_size;
  options.buffers.row_gradient =
      adapters ? RowGradient::kUnread : RowGradient::kRead;
  options.buffers.contributions.slots_ahead = 30;
  options.buffers.contributions.units =
      ContributedUnits(options.model.config, options.model.adapter);
  options.groups = 8;
  options.device.bytes = 64 << 20;
  return options;
}

uint64_t LargestSlot(const PlanLimitsOptions& options, const Plan& plan) {
  return PlanLimits(options).LargestSlotBytes(plan);
}

TEST(PlanLimitsTest, WiderSlotsHoldFewerSums) {
  const PlanLimitsOptions options = TestOptions(false);
  Plan plan = {{}, {{0, 3}}, true};
  const uint64_t narrow = LargestSlot(options, plan);
  plan.split.assign(1, {4, 4});
  const uint64_t halves = LargestSlot(options, plan);
  plan.split.assign(1, {1, 1, 1, 1, 1, 1, 1, 1});
  const uint64_t wide = LargestSlot(options, plan);
  // Sums of 1, 2, 4 and 8 groups; of 1, 2 and 4; one.
  const uint64_t one = narrow - halves;
  EXPECT_GT(one, 0u);
  EXPECT_EQ(halves - wide, 2 * one);
  // A part that is no subtree sends several, one while it folds the next.
  plan.split.assign(1, {3, 5});
  EXPECT_EQ(LargestSlot(options, plan), narrow);
}

// Beside the sums of its fold a slot holds one that goes down, or its rounded
// copy, of several sums two of those.
TEST(PlanLimitsTest, RoundedCopiesTakeRoomBesideTheSums) {
  PlanLimitsOptions options = TestOptions(false);
  options.model.dtype = DType::kBF16;
  PlanLimitsOptions rounded = options;
  rounded.buffers.contributions.dtype = DType::kBF16;
  Plan plan = {{}, {{0, 3}}, true};
  const uint64_t narrow = LargestSlot(options, plan);
  const uint64_t narrow_rounded = LargestSlot(rounded, plan);
  plan.split.assign(1, {4, 4});
  const uint64_t sum = narrow - LargestSlot(options, plan);
  // Rounded up unit by unit.
  EXPECT_NEAR(static_cast<double>(narrow_rounded - narrow),
              static_cast<double>(sum) / 2, 5 * 512);
  plan.split.assign(1, {3, 5});
  EXPECT_NEAR(static_cast<double>(LargestSlot(rounded, plan)),
              static_cast<double>(LargestSlot(options, plan)), 5 * 512);
}

TEST(PlanLimitsTest, FrozenLayersHaveNoSums) {
  const Plan plan = TestPlan();
  EXPECT_LT(LargestSlot(TestOptions(true), plan),
            LargestSlot(TestOptions(false), plan));
}

TEST(PlanLimitsTest, WhatComputesASlotIsCountedWhereItIsOfTheDevice) {
  PlanLimitsOptions options = TestOptions(false);
  options.working = {.batch = {2, 64}, .backward = true, .head_token_chunk = 9};
  const Plan plan = {{}, {{0, 3}}, true};
  const uint64_t buffers = LargestSlot(options, plan);
  options.device.with_libraries = true;
  EXPECT_EQ(LargestSlot(options, plan) - buffers,
            WorkingBytes(options.model.config, {}, options.working, 0, 3));
  // Forward slots keep no graph.
  options.buffers.row_tokens = options.working.batch.tokens = 64 << 10;
  const Plan coarse = {{{0, 2}}, {{3, 3}, {2, 2}, {1, 1}, {0, 0}}, true};
  const Plan fine = {
      {{0, 0}, {1, 1}, {2, 2}}, {{3, 3}, {2, 2}, {1, 1}, {0, 0}}, true};
  const uint64_t tensor = 2 * (64 << 10) * 24 * 4;
  EXPECT_LE(LargestSlot(options, coarse),
            LargestSlot(options, fine) + 6 * tensor);
}

TEST(PlanLimitsTest, AForwardSlotSendsAnInputToEachStageThatBeginsInside) {
  PlanLimitsOptions options = TestOptions(true);
  options.buffers.row_tokens = 64 << 10;  // activations are all that counts
  const Plan fine = TestPlan();
  const Plan coarse = {{{0, 2}}, {{3, 3}, {2, 2}, {1, 1}, {0, 0}}, true};
  const uint64_t tensor = 2 * (64 << 10) * 24 * 4;
  // Two inputs and outputs; six outputs.
  EXPECT_NEAR(static_cast<double>(LargestSlot(options, coarse)),
              static_cast<double>(8 * tensor), 0.1 * tensor);
  EXPECT_LT(LargestSlot(options, fine), 7 * tensor);
}

TEST(PlanLimitsTest, ASlotThatFitsNoDeviceIsRefusedWithItsBytes) {
  PlanLimitsOptions options = TestOptions(false);
  const uint64_t bytes = LargestSlot(options, TestPlan());
  options.device.bytes = bytes;
  EXPECT_EQ(PlanLimits(options).CheckSlots(TestPlan()), absl::OkStatus());
  options.device.bytes = bytes - 1;
  const absl::Status status = PlanLimits(options).CheckSlots(TestPlan());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(std::string(status.message()),
                                absl::StrCat("needs ", bytes, " bytes")))
      << status;
}

TEST(PlanLimitsTest, ACommandNamesSoManySums) {
  PlanLimitsOptions options = TestOptions(false);
  options.model.config = TestModel(true, 500);
  options.device.bytes = uint64_t{1} << 40;
  Plan plan = {{{0, 0}}, {{1, 500}, {0, 0}}, true};
  EXPECT_EQ(PlanLimits(options).CheckSlots(plan), absl::OkStatus());
  // Seven of eight groups are three subtrees.
  plan.split = {{8}, {1, 7}, {8}};
  const absl::Status status = PlanLimits(options).CheckSlots(plan);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(std::string(status.message()),
                                "backward[0] has more sums"))
      << status;
}

TEST(PlanLimitsTest, StagesAreCutUntilEachFitsOrIsOneLayer) {
  PlanLimitsOptions options = TestOptions(false);
  options.model.config = TestModel(true, 7);
  options.device.bytes = uint64_t{1} << 40;
  const Plan plan = {{{0, 3}}, {{4, 7}, {0, 3}}, true};
  EXPECT_EQ(PlanLimits(options).CutToFit(plan), plan);
  options.device.bytes = LargestSlot(options, plan) - 1;
  const Plan cut = PlanLimits(options).CutToFit(plan);
  EXPECT_EQ(PlanLimits(options).CheckSlots(cut), absl::OkStatus());
  EXPECT_EQ(CheckPlan(cut, 8), absl::OkStatus());
  EXPECT_GT(cut.slot_count(), plan.slot_count());
  options.device.bytes = 1;
  const Plan single = PlanLimits(options).CutToFit(plan);
  EXPECT_EQ(CheckPlan(single, 8), absl::OkStatus());
  EXPECT_EQ(single.forward.size(), 7u);
  EXPECT_EQ(single.backward.size(), 8u);
}

// It is as long as the longest forward stage, and sends more.
TEST(PlanLimitsTest, WhatRunsAgainIsCutWithForwardStages) {
  PlanLimitsOptions options = TestOptions(false);
  options.model.config = TestModel(true, 8);
  options.buffers.row_tokens = 64 << 10;  // activations are all that counts
  options.device.bytes = uint64_t{1} << 40;
  Plan plan = BlockByBlock(8);
  plan.forward = {{0, 3}, {4, 7}};
  plan.saving.every = 4;
  EXPECT_EQ(PlanLimits(options).CutToFit(plan), plan);
  options.device.bytes = LargestSlot(options, plan) - 1;
  const Plan cut = PlanLimits(options).CutToFit(plan);
  EXPECT_EQ(PlanLimits(options).CheckSlots(cut), absl::OkStatus());
  EXPECT_EQ(CheckPlan(cut, 9), absl::OkStatus());
  EXPECT_GT(cut.forward.size(), plan.forward.size());
  EXPECT_EQ(cut.backward, plan.backward);
  options.device.bytes = 1;
  EXPECT_EQ(PlanLimits(options).CutToFit(plan).forward.size(), 8u);
}

}  // namespace
}  // namespace roundhouse
