#include "server/steps/step_entry.h"

#include <cmath>

namespace roundhouse {

LossSum SumLoss(const StepEntry& entry) {
  LossSum sum;
  double total = 0;
  for (const auto& [key, result] : entry.results) {
    total += result.loss_sum;
    sum.finite &= result.finite == wire::Finite::kYes;
  }
  sum.mean = total / static_cast<double>(entry.data.target_tokens);
  sum.finite &= std::isfinite(sum.mean);
  return sum;
}

}  // namespace roundhouse
