// What a part of a step's plan (scheduler/plan/step_plan.h) costs in time.
//
// Pure function.
#ifndef ROUNDHOUSE_SCHEDULER_PLAN_PART_TIME_H_
#define ROUNDHOUSE_SCHEDULER_PLAN_PART_TIME_H_

#include <cstdint>

#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/step_plan.h"

namespace roundhouse {

// Compute of a part at speed 1.
int64_t PartNs(const Part& part, const ModelCosts& costs);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_PLAN_PART_TIME_H_
