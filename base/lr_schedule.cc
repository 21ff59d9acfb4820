#include "base/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace roundhouse {
namespace {

double AtLeastOne(int64_t steps) {
  return static_cast<double>(std::max<int64_t>(1, steps));
}

double LinearFactor(const LrSchedule& schedule, int64_t step) {
  const double left = static_cast<double>(schedule.total_steps - step);
  return std::max(
      0.0, left / AtLeastOne(schedule.total_steps - schedule.warmup_steps));
}

double CosineFactor(const LrSchedule& schedule, int64_t step) {
  const double progress = std::min(
      1.0, static_cast<double>(step - schedule.warmup_steps) /
               AtLeastOne(schedule.total_steps - schedule.warmup_steps));
  return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

double Factor(const LrSchedule& schedule, int64_t step) {
  if (step < schedule.warmup_steps) {
    return static_cast<double>(step) / AtLeastOne(schedule.warmup_steps);
  }
  switch (schedule.type) {
    case LrScheduleType::kConstant:
      return 1.0;
    case LrScheduleType::kLinear:
      return LinearFactor(schedule, step);
    case LrScheduleType::kCosine:
      return CosineFactor(schedule, step);
  }
  return 1.0;
}

}  // namespace

double LearningRate(const LrSchedule& schedule, int64_t step) {
  return schedule.peak * Factor(schedule, step);
}

}  // namespace roundhouse
