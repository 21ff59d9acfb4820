// LossScaler against what torch.amp.GradScaler calls in its update().
#include <cstdint>
#include <random>

#include "ATen/ATen.h"
#include "base/loss_scaler.h"
#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

TEST(LossScalerParityTest, TheScalesAreThoseOfGradScaler) {
  for (const int mean_good_steps : {3, 1500, 3000}) {
    SCOPED_TRACE(mean_good_steps);
    std::mt19937 random(7);
    LossScaler scaler({.scale = 0x1p100f});
    at::Tensor scale = at::full({}, scaler.scale(), at::kFloat);
    at::Tensor tracker = at::zeros({}, at::kInt);
    for (int step = 0; step < 40000 && !scaler.exhausted(); ++step) {
      const bool finite = random() % mean_good_steps != 0;
      scaler.EndStep(finite);
      at::_amp_update_scale_(
          scale, tracker, at::full({}, finite ? 0.0f : 1.0f, at::kFloat),
          kLossScaleGrowth, kLossScaleBackoff, kLossScaleGrowthSteps);
      ASSERT_EQ(scaler.scale(), scale.item<float>()) << step;
      ASSERT_EQ(scaler.state().growth_tracker, tracker.item<int32_t>()) << step;
    }
  }
}

// Beyond the largest float.
TEST(LossScalerParityTest, TheLargestScaleStays) {
  LossScaler scaler({.scale = 0x1p127f, .growth_tracker = 1999});
  at::Tensor scale = at::full({}, scaler.scale(), at::kFloat);
  at::Tensor tracker = at::full({}, 1999, at::kInt);
  for (int step = 0; step < 3; ++step) {
    scaler.EndStep(true);
    at::_amp_update_scale_(scale, tracker, at::zeros({}, at::kFloat),
                           kLossScaleGrowth, kLossScaleBackoff,
                           kLossScaleGrowthSteps);
    EXPECT_EQ(scaler.scale(), scale.item<float>());
    EXPECT_EQ(scaler.state().growth_tracker, tracker.item<int32_t>());
  }
}

}  // namespace
}  // namespace roundhouse::worker
