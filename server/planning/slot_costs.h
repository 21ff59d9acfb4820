// What the Dispatcher is told of a layer's time (StepSpec::layer_costs), from
// what was measured.
//
// Pure functions.
#ifndef ROUNDHOUSE_SERVER_PLANNING_SLOT_COSTS_H_
#define ROUNDHOUSE_SERVER_PLANNING_SLOT_COSTS_H_

#include <vector>

#include "scheduler/dispatch/dispatcher.h"
#include "scheduler/plan/cost_model.h"

namespace roundhouse {

// Layers whose times lie within this factor of each other are layers of one
// kind, whose times vary.
inline constexpr double kSameLayerTime = 1.05;

// Empty before training is measured.  Layers of one kind cost what they take on
// average, all the same: slots of equal work are equal to the Dispatcher, and
// which device of several is free first is not decided by noise.
std::vector<MicroBatchCost> MicroBatchCosts(const CostModel& measured);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_SLOT_COSTS_H_
