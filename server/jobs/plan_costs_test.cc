#include "server/jobs/plan_costs.h"

#include "base/wire/messages.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(MaxRoundMicroBatchesTest, TheLargestSlotFitsAMessage) {
  for (int layers : {2, 4, 33, 97, 200}) {
    // One forward stage over everything, one backward stage a layer.
    Plan plan;
    plan.fused = true;
    plan.forward = {{0, layers - 2}};
    for (int layer = layers - 1; layer >= 0; --layer) {
      plan.backward.push_back({layer, layer});
    }
    const auto most = static_cast<size_t>(MaxRoundMicroBatches(plan));
    wire::RunSlot slot;
    slot.units.resize(layers);
    slot.contributions.resize(layers);
    slot.micro_batches.resize(most);
    slot.outputs.resize(most * (layers - 1));
    EXPECT_TRUE(wire::Encode({1, slot}).ok()) << layers;
    EXPECT_GE(most, 8u) << layers;
  }
}

TEST(MaxRoundMicroBatchesTest, CountsOnlyStagesThatBeginInside) {
  const Plan fine = {{{0, 1}, {2, 3}}, {{4, 4}, {2, 3}, {0, 1}}, true};
  const Plan coarse = {{{0, 3}}, {{4, 4}, {2, 3}, {0, 1}}, true};
  EXPECT_GT(MaxRoundMicroBatches(fine), MaxRoundMicroBatches(coarse));
}

TEST(PredictedRoundSecondsTest, LongestStageTimesStagesOrDevices) {
  const CostModel cold({1000, 1000, 2000});  // 1 ns a byte; backward 3
  const Plan plan = {{{0, 1}}, {{2, 2}, {1, 1}, {0, 0}}, true};
  EXPECT_DOUBLE_EQ(PredictedRoundSeconds(plan, cold, 2), 6000e-9 * 4);
  EXPECT_DOUBLE_EQ(PredictedRoundSeconds(plan, cold, 8), 6000e-9 * 8);
}

}  // namespace
}  // namespace roundhouse
