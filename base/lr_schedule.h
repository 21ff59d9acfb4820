// Learning-rate schedules, as transformers' get_constant_schedule_with_warmup,
// get_linear_schedule_with_warmup and get_cosine_schedule_with_warmup compute
// them (half a cosine).  Pure.
#ifndef ROUNDHOUSE_BASE_LR_SCHEDULE_H_
#define ROUNDHOUSE_BASE_LR_SCHEDULE_H_

#include <cstdint>

namespace roundhouse {

// Values are stored in checkpoints: never renumber.
enum class LrScheduleType : uint32_t {
  kConstant = 1,
  kLinear = 2,
  kCosine = 3
};

struct LrSchedule {
  LrScheduleType type = LrScheduleType::kConstant;
  double peak = 1e-3;        // learning rate at the end of warm-up
  int64_t warmup_steps = 0;  // optimizer steps, rising linearly from 0
  int64_t total_steps = 1;   // optimizer steps of the job
};

// The learning rate of optimizer step `step`, counted from 0: the first update
// of a job uses step 0 (so it is 0 under warm-up, as in transformers).  Past
// the last step it stays at the last value for kConstant and at 0 otherwise.
// REQUIRES: step >= 0.
double LearningRate(const LrSchedule& schedule, int64_t step);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_LR_SCHEDULE_H_
