// How long a plan takes, without simulating its transfers one by one: the
// closed form by which the search ranks plans.
//
// Micro-batch by micro-batch over the slots, each transfer at its link's full
// rate; never less than all the host bytes take.  Within a per cent or so of
// the simulation, except where host memory is nearly full: there it is too low.
//
// Pure functions; thread-safe; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SEARCH_STEP_ESTIMATE_H_
#define ROUNDHOUSE_SCHEDULER_SEARCH_STEP_ESTIMATE_H_

#include <cstdint>
#include <vector>

#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/part_time.h"
#include "scheduler/search/step_bound.h"
#include "scheduler/simulate/step_simulator.h"

namespace roundhouse {

// What the step moves through host memory: uploads, downloads, reduction.
int64_t HostBytes(const std::vector<Part>& parts, const ModelCosts& costs,
                  Contributions contributions, Updates updates);

// The isolated step whose time is estimated.
struct StepToEstimate {
  int micro_batches = 1;
  int look_ahead = 1;  // StepPlan::look_ahead
  Contributions contributions = Contributions::kModelDtype;
  Updates updates = Updates::kNone;
  FusedSlots fused = FusedSlots::kWhole;
};

// REQUIRES: `device_of` has a device for every part, the parts are those of a
// checked plan over the step's micro-batches.
double EstimateStepNs(const std::vector<Part>& parts,
                      const std::vector<int>& device_of,
                      const ModelCosts& costs, const Machine& machine,
                      const StepToEstimate& step);

// What a step of consecutive ones takes, from the estimate of an isolated one:
// its rounds and updates more, and slower as host memory fills up.
double EstimateStepsNs(const std::vector<Part>& parts, double step_ns,
                       const ModelCosts& costs, const Machine& machine,
                       const BoundOptions& options, FusedSlots fused);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SEARCH_STEP_ESTIMATE_H_
