#include "scheduler/simulate/device_memory.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"

namespace roundhouse {
namespace {

Part MakePart(SlotKind kind, LayerRange layers, int64_t groups) {
  Part part;
  part.kind = kind;
  part.layers = layers;
  part.groups = groups;
  part.contributions = kind == SlotKind::kForward ? 0 : 1;
  return part;
}

TEST(DeviceMemoryTest, ActivationsFollowTheFormula) {
  const ModelCosts costs = SmallModel(4);
  // 64 tokens, hidden 128, 4 + 4 heads of 32, inner 512.
  EXPECT_EQ(ActivationBytes(costs, 0), 64 * (1024 + 512 + 512 + 3072));
  // All 64 tokens' logits of a vocabulary of 42e6 / 2 / 128.
  EXPECT_EQ(ActivationBytes(costs, 4), 64 * 164062 * 8);
  EXPECT_EQ(BoundaryBufferBytes(costs), 6 * 2 * 64 * 128);
}

TEST(DeviceMemoryTest, ForwardKeepsOneLayersActivations) {
  const ModelCosts costs = SmallModel(4);
  const Part forward = MakePart(SlotKind::kForward, {0, 2}, 4);
  const Part backward = MakePart(SlotKind::kBackward, {0, 2}, 4);
  EXPECT_EQ(PartWeightBytes(forward, costs), 63'000'000);
  EXPECT_EQ(PartActivationBytes(forward, costs),
            ActivationBytes(costs, 0) + BoundaryBufferBytes(costs));
  EXPECT_EQ(PartActivationBytes(backward, costs),
            3 * ActivationBytes(costs, 0) + BoundaryBufferBytes(costs));
  EXPECT_EQ(PartSumBytes(forward, costs), 0);
  EXPECT_EQ(PartDownBytes(forward, costs), 0);
}

TEST(DeviceMemoryTest, SumsGrowWithTheTree) {
  const ModelCosts costs = SmallModel(4);
  const int64_t stage = 2 * 21'000'000;
  const std::pair<int64_t, int64_t> cases[] = {{1, 1}, {2, 2}, {3, 3},
                                               {4, 3}, {5, 4}, {8, 4}};
  for (const auto& [groups, sums] : cases) {
    EXPECT_EQ(
        PartSumBytes(MakePart(SlotKind::kBackward, {1, 1}, groups), costs),
        sums * stage)
        << groups;
  }
  Part uneven = MakePart(SlotKind::kBackward, {1, 1}, 2);
  uneven.contributions = 4;
  EXPECT_EQ(PartSumBytes(uneven, costs), 4 * stage);
  EXPECT_EQ(PartDownBytes(uneven, costs), 4 * stage);
}

TEST(DeviceMemoryTest, RunningNextAndLastPartsCount) {
  const ModelCosts costs = SmallModel(4);
  const std::vector<Part> parts = {MakePart(SlotKind::kFused, {4, 4}, 1),
                                   MakePart(SlotKind::kBackward, {2, 3}, 1),
                                   MakePart(SlotKind::kBackward, {0, 1}, 1)};
  // The second: its own, what the first sends, the weights of the third.
  const int64_t peak =
      PartWeightBytes(parts[1], costs) + PartSumBytes(parts[1], costs) +
      PartActivationBytes(parts[1], costs) + PartDownBytes(parts[0], costs) +
      PartWeightBytes(parts[2], costs);
  Machine machine;
  machine.devices.resize(2);
  machine.devices[1].memory_bytes = peak;
  EXPECT_EQ(CheckDeviceMemory(parts, {1, 1, 1}, costs, machine, 1),
            absl::OkStatus());
  machine.devices[1].memory_bytes = peak - 1;
  EXPECT_EQ(CheckDeviceMemory(parts, {1, 1, 1}, costs, machine, 1).message(),
            absl::StrCat("device 1 needs ", peak, " bytes for slot 0, it has ",
                         peak - 1));
  EXPECT_EQ(CheckDeviceMemory(parts, {1, 0, 1}, costs, machine, 1),
            absl::OkStatus());
  // The weights of the next round's first part, too, where it follows there.
  machine.devices[1].memory_bytes = peak;
  EXPECT_EQ(CheckDeviceMemory(parts, {1, 1, 1, 0, 0, 0}, costs, machine, 1),
            absl::OkStatus());
  machine.devices[0].memory_bytes = peak - 1;
  EXPECT_EQ(
      CheckDeviceMemory(parts, {1, 1, 1, 0, 0, 0}, costs, machine, 1).message(),
      absl::StrCat("device 0 needs ", peak, " bytes for slot 1, it has ",
                   peak - 1));
  // Looking further ahead, the first part holds all three's weights.
  EXPECT_NE(CheckDeviceMemory(parts, {0, 0, 0}, costs, {{{peak, 1}}}, 2),
            absl::OkStatus());
}

TEST(DeviceMemoryTest, AFusedPartHasToFitIntoSomeDevice) {
  const ModelCosts costs = SmallModel(4);
  const std::vector<Part> parts = {MakePart(SlotKind::kForward, {0, 1}, 0),
                                   MakePart(SlotKind::kFused, {2, 4}, 1)};
  const int64_t own = PartWeightBytes(parts[1], costs) +
                      PartSumBytes(parts[1], costs) +
                      PartActivationBytes(parts[1], costs);
  EXPECT_FALSE(FusedPartIsTooLarge(parts, costs, {{{1, 1}, {own, 1}}}));
  EXPECT_TRUE(FusedPartIsTooLarge(parts, costs, {{{1, 1}, {own - 1, 1}}}));
  EXPECT_FALSE(FusedPartIsTooLarge({parts[0]}, costs, {{{1, 1}}}));
}

}  // namespace
}  // namespace roundhouse
