#include "base/loss_scaler.h"

#include <cmath>

namespace roundhouse {

bool LossScaler::IsValid(const State& state) {
  int exponent;
  return std::isfinite(state.scale) && state.scale >= kLowestLossScale &&
         std::frexp(state.scale, &exponent) == 0.5f &&
         state.growth_tracker >= 0 &&
         state.growth_tracker < kLossScaleGrowthSteps &&
         state.skipped_steps >= 0;
}

// As torch's _amp_update_scale_: a scale that would no longer be finite stays.
void LossScaler::EndStep(bool finite) {
  if (!finite) {
    state_.scale *= kLossScaleBackoff;
    state_.growth_tracker = 0;
    ++state_.skipped_steps;
    return;
  }
  if (++state_.growth_tracker < kLossScaleGrowthSteps) return;
  const float grown = state_.scale * kLossScaleGrowth;
  if (std::isfinite(grown)) state_.scale = grown;
  state_.growth_tracker = 0;
}

}  // namespace roundhouse
