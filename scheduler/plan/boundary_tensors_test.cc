#include "scheduler/plan/boundary_tensors.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// Four layers and a head, each a stage.
Plan Single() { return BlockByBlock(4); }

std::vector<int> ReadersOf(const BoundaryMap& map) {
  std::vector<int> readers;
  for (const BoundaryTensor& tensor : map.tensors) {
    readers.push_back(tensor.readers);
  }
  return readers;
}

TEST(BoundaryTensorsTest, StagesThatAreAlikeReadEachInputTwice) {
  const BoundaryMap map =
      MapOf(Single(), RoundKind::kTrain, RowGradient::kRead);
  // Inputs of layers 0 to 4, then gradients of layers 4 to 0.
  EXPECT_EQ(ReadersOf(map), (std::vector<int>{2, 2, 2, 2, 1, 1, 1, 1, 1, 1}));
  ASSERT_EQ(map.slots.size(), 9u);
  EXPECT_EQ(map.slots[0].input, 0);
  EXPECT_EQ(map.slots[0].outputs, std::vector<int>{1});
  EXPECT_EQ(map.slots[4].input, 4);
  EXPECT_FALSE(map.slots[4].gradient.has_value());
  EXPECT_EQ(map.slots[4].outputs, std::vector<int>{5});
  EXPECT_EQ(map.slots[8].input, 0);
  EXPECT_EQ(map.slots[8].gradient, 8);
  EXPECT_EQ(map.row_gradient, 9);
}

TEST(BoundaryTensorsTest, AFrozenEmbeddingsGradientIsNotWritten) {
  const BoundaryMap map =
      MapOf(Single(), RoundKind::kTrain, RowGradient::kUnread);
  EXPECT_EQ(map.tensors.size(), 9u);
  EXPECT_TRUE(map.slots.back().outputs.empty());
  EXPECT_FALSE(map.row_gradient.has_value());
}

TEST(BoundaryTensorsTest, StagesThatStraddleEachOther) {
  // Layer 2's input lies inside of a forward stage; 3's is read by the next
  // forward stage alone.
  const Plan plan = {{{0, 2}, {3, 3}}, {{4, 4}, {2, 3}, {0, 1}}, true};
  const BoundaryMap map = MapOf(plan, RoundKind::kTrain, RowGradient::kRead);
  ASSERT_EQ(map.slots.size(), 5u);
  EXPECT_EQ(map.slots[0].outputs, (std::vector<int>{1, 2}));
  EXPECT_EQ(map.tensors[1].boundary, 2);
  EXPECT_EQ(map.tensors[1].last_reader, 3);
  EXPECT_EQ(map.tensors[2].boundary, 3);
  EXPECT_EQ(map.tensors[2].last_reader, 1);
  EXPECT_EQ(ReadersOf(map), (std::vector<int>{2, 1, 1, 1, 1, 1, 1}));
}

TEST(BoundaryTensorsTest, EvaluationsReadEachActivationOnce) {
  const BoundaryMap map =
      MapOf(Single(), RoundKind::kEvaluate, RowGradient::kRead);
  EXPECT_EQ(ReadersOf(map), (std::vector<int>{1, 1, 1, 1, 1}));
  EXPECT_EQ(map.slots.size(), 5u);
  EXPECT_TRUE(map.slots[4].outputs.empty());
  EXPECT_FALSE(map.row_gradient.has_value());
}

TEST(BoundaryTensorsTest, LeastIsWhatIsSavedAndOneSlotsOutput) {
  // The inputs of five stages, and the fused one's gradient.
  EXPECT_EQ(LeastBoundaryTensors(Single(), RowGradient::kRead), 6);
  EXPECT_EQ(LeastBoundaryTensors(Single(), RowGradient::kUnread), 6);
  const Plan one = {{}, {{0, 4}}, true};
  EXPECT_EQ(LeastBoundaryTensors(one, RowGradient::kRead), 2);
  EXPECT_EQ(LeastBoundaryTensors(one, RowGradient::kUnread), 1);
}

TEST(BoundaryTensorsTest, WhatIsNotKeptIsWrittenAgain) {
  Plan plan = BlockByBlock(4);
  plan.saving.every = 2;
  const BoundaryMap map = MapOf(plan, RoundKind::kTrain, RowGradient::kRead);
  // Inputs of layers 0 to 4, gradients of layers 4 to 2, layer 1's input once
  // more, gradients of layers 1 and 0.  Layers 3 and 2 are the first group.
  EXPECT_EQ(ReadersOf(map),
            (std::vector<int>{3, 1, 2, 2, 1, 1, 1, 1, 1, 1, 1}));
  ASSERT_EQ(map.slots.size(), 10u);
  const BoundaryTensor& again = map.tensors[8];
  EXPECT_EQ(again.value, BoundaryValue::kAgain);
  EXPECT_EQ(again.boundary, 1);
  EXPECT_EQ(again.writer, 7);
  EXPECT_EQ(again.last_reader, 8);
  EXPECT_EQ(map.slots[7].input, 0);
  EXPECT_EQ(map.slots[8].input, 8);
  // The forward pass reads it once, in its next slot.
  EXPECT_EQ(map.tensors[1].last_reader, 1);
  // Evaluations know nothing of it.
  EXPECT_EQ(MapOf(plan, RoundKind::kEvaluate, RowGradient::kRead).slots.size(),
            5u);
}

TEST(BoundaryTensorsTest, KeepingFewTakesLittle) {
  Plan plan = BlockByBlock(64);
  std::vector<int64_t> least;
  for (const int every : {1, 2, 4, 8, 16}) {
    plan.saving.every = every;
    least.push_back(LeastBoundaryTensors(plan, RowGradient::kRead));
  }
  EXPECT_EQ(least, (std::vector<int64_t>{66, 35, 21, 17, 21}));
  // Each group that writes one again takes one less.
  plan.saving.every = 2;
  for (const int groups : {1, 2, 10, 31}) {
    plan.saving.groups = groups;
    EXPECT_EQ(LeastBoundaryTensors(plan, RowGradient::kRead), 66 - groups);
  }
}

TEST(BoundaryTensorsTest, EachPartThatIsSentTakesItsOutputs) {
  const Plan plan = BlockByBlock(40);
  const int64_t least = LeastBoundaryTensors(plan, RowGradient::kRead);
  EXPECT_EQ(least, 42);
  // The last embedding gradient is one more.
  EXPECT_EQ(BoundaryTensors(plan, RowGradient::kRead, 1), least + 1);
  EXPECT_EQ(BoundaryTensors(plan, RowGradient::kRead, 24), least + 24);
  EXPECT_EQ(BoundaryTensors(plan, RowGradient::kUnread, 24), least + 23);
  Plan wide = plan;
  wide.split.assign(plan.slot_count(), {1, 1});
  EXPECT_EQ(BoundaryTensors(wide, RowGradient::kRead, 24), least + 12);
}

TEST(BoundaryTensorsTest, WithLittleRoomThereAreFewer) {
  const Plan plan = BlockByBlock(40);
  const auto fitting = [&plan](int64_t room) {
    return FittingTensors(room, plan, RowGradient::kRead, 24);
  };
  EXPECT_EQ(fitting(1000), 66);
  EXPECT_EQ(fitting(66), 66);
  EXPECT_EQ(fitting(50), 50);
  EXPECT_EQ(fitting(44), 44);
  EXPECT_EQ(fitting(43), 44);
  EXPECT_EQ(fitting(-5), 44);
}

TEST(BoundaryTensorsTest, NeverMoreThanTwoRoundsWrite) {
  EXPECT_EQ(BoundaryTensors(Single(), RowGradient::kRead, 1000), 20);
}

}  // namespace
}  // namespace roundhouse
