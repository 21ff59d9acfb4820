#include "server/planning/plan_costs.h"

#include <algorithm>

#include "base/wire/messages.h"
#include "gtest/gtest.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

TrainedModel TestTrained(bool tied) {
  return {TestModel(tied), {}, DType::kBF16};
}

TEST(LayerBytesTest, AWholeModelTrainsAllThatItUploads) {
  for (const bool tied : {false, true}) {
    const TrainedModel model = TestTrained(tied);
    const std::vector<int64_t> weights = LayerBytes(model);
    const std::vector<int64_t> gradients = LayerGradientBytes(model);
    ASSERT_EQ(weights.size(), 4u);
    for (size_t layer = 0; layer < 4; ++layer) {
      EXPECT_EQ(gradients[layer], 2 * weights[layer]) << "fp32 to bf16";
    }
    EXPECT_EQ(weights[0], 2 * ModelUnit(model.config, 1).element_count);
  }
}

TEST(LayerBytesTest, WithAdaptersOnlyTheseHaveGradients) {
  for (const bool tied : {false, true}) {
    TrainedModel model = TestTrained(tied);
    const std::vector<int64_t> frozen = LayerBytes(model);
    model.adapter = TestAdapter();
    const std::vector<int64_t> weights = LayerBytes(model);
    const std::vector<int64_t> gradients = LayerGradientBytes(model);
    const int64_t adapters =
        4 * AdapterUnit(model.config, model.adapter, 0).element_count;
    for (size_t layer = 0; layer < 3; ++layer) {
      EXPECT_EQ(weights[layer], frozen[layer] + adapters);
      EXPECT_EQ(gradients[layer], adapters);
    }
    EXPECT_EQ(weights[3], frozen[3]);
    EXPECT_EQ(gradients[3], 0);
  }
}

// Frozen weights fit a device that has no room for gradients of all of them.
TEST(PlanFromCostsTest, ADeviceHoldsGradientsOfWhatTrainsOnly) {
  TrainedModel model = TestTrained(false);
  const CostModel costs(LayerBytes(model));
  const auto device = static_cast<uint64_t>(LayerBytes(model)[0]) * 2 * 10 / 3;
  const auto full = PlanFromCosts(costs, model, 1, device);
  EXPECT_EQ(full.status().code(), absl::StatusCode::kResourceExhausted);
  model.adapter = TestAdapter();
  const auto adapters = PlanFromCosts(costs, model, 1, device);
  EXPECT_TRUE(adapters.ok()) << adapters.status();
}

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
    slot.units.resize(2 * layers);  // with adapters
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

// What is left for units fits a message beside the most micro-batches.
TEST(MaxRoundMicroBatchesTest, LeavesRoomForUnits) {
  const Plan plan = {{{0, 0}}, {{1, 3}, {0, 0}}, true};
  wire::RunSlot slot;
  slot.contributions.resize(kMaxSlotUnitBytes / sizeof(wire::SlotContribution));
  slot.micro_batches.resize(MaxRoundMicroBatches(plan));
  slot.outputs.resize(slot.micro_batches.size());
  EXPECT_TRUE(wire::Encode({1, slot}).ok());
}

}  // namespace
}  // namespace roundhouse
