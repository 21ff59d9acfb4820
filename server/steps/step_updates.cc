#include "server/steps/step_updates.h"

#include <cmath>

#include "base/reduction.h"

namespace roundhouse {
namespace {

LrScheduleType ScheduleType(LrSchedulerType type) {
  switch (type) {
    case LrSchedulerType::kLinear:
      return LrScheduleType::kLinear;
    case LrSchedulerType::kCosine:
      return LrScheduleType::kCosine;
    case LrSchedulerType::kConstant:
    case LrSchedulerType::kConstantWithWarmup:
      return LrScheduleType::kConstant;
  }
  return LrScheduleType::kConstant;
}

LrSchedule MakeSchedule(const JobSpec& spec, int64_t total_steps) {
  LrSchedule schedule;
  schedule.type = ScheduleType(spec.lr_scheduler_type);
  schedule.peak = spec.learning_rate;
  schedule.total_steps = total_steps;
  // transformers: ceil(ratio x steps); "constant" has no warm-up.
  schedule.warmup_steps = spec.warmup_steps;
  if (spec.warmup_ratio > 0) {
    schedule.warmup_steps = static_cast<int64_t>(
        std::ceil(static_cast<double>(total_steps) * spec.warmup_ratio));
  }
  if (spec.lr_scheduler_type == LrSchedulerType::kConstant) {
    schedule.warmup_steps = 0;
  }
  return schedule;
}

}  // namespace

StepUpdates::StepUpdates(const JobSpec& spec, int64_t total_steps)
    : scales_loss_(spec.dtype == DType::kF16),
      wait_for_norm_(WaitsForNorm(spec)),
      max_grad_norm_(spec.max_grad_norm),
      schedule_(MakeSchedule(spec, total_steps)),
      same_{.beta1 = spec.adam_beta1,
            .beta2 = spec.adam_beta2,
            .epsilon = spec.adam_epsilon,
            .weight_decay = spec.weight_decay} {}

UpdateNumbers StepUpdates::Begin(int64_t step) const {
  UpdateNumbers update = same_;
  update.number = step - scaler_.state().skipped_steps;
  update.learning_rate = LearningRate(schedule_, update.number - 1);
  return update;
}

std::optional<double> StepUpdates::EndStep(double squares, double loss_scale,
                                           UpdateNumbers* update) {
  const double norm = std::sqrt(squares) / loss_scale;
  const bool finite = std::isfinite(norm);
  if (scales_loss_) scaler_.EndStep(finite);
  if (!finite) return std::nullopt;
  update->gradient_scale =
      ClipFactor(norm, max_grad_norm_) / static_cast<float>(loss_scale);
  return norm;
}

std::optional<LossScaler::State> StepUpdates::State() const {
  if (!scales_loss_) return std::nullopt;
  return scaler_.state();
}

void StepUpdates::GoOnFrom(const std::optional<LossScaler::State>& state) {
  if (scales_loss_ && state.has_value()) scaler_ = LossScaler(*state);
}

}  // namespace roundhouse
