// Shares for devices that differ in speed or memory: slot by slot, so that the
// devices that run it are free again at about the same time.
//
// Pure function; thread-safe; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SEARCH_BALANCED_PLAN_H_
#define ROUNDHOUSE_SCHEDULER_SEARCH_BALANCED_PLAN_H_

#include <vector>

#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/part_time.h"
#include "scheduler/plan/plan.h"

namespace roundhouse {

// A slot goes to those `widths[slot]` devices that would finish an equal share
// first; group after group to the one of them that would then be free first and
// has the memory for it.  Devices are busy as EarliestFinishFeed makes them.
// Larger shares come first.  A device may get none: then the slot is narrower.
// Where no device has the memory for another group, memory is ignored
// (CheckDeviceMemory will say so).
// REQUIRES: one width per slot, each at least 1 and at most the devices.
StepPlan BalancedPlan(const Plan& stages, const std::vector<int>& widths,
                      int micro_batches, int groups, const ModelCosts& costs,
                      const Machine& machine);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SEARCH_BALANCED_PLAN_H_
