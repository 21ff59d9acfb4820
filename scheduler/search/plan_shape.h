// Plans described by a few numbers: what the search changes one by one.
//
// Pure function; thread-safe; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SEARCH_PLAN_SHAPE_H_
#define ROUNDHOUSE_SCHEDULER_SEARCH_PLAN_SHAPE_H_

#include <vector>

#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/part_time.h"

namespace roundhouse {

// A family of plans: stages of equal length, one width per direction, lengths
// and widths of their own for the first forward and the last backward slots,
// where the pipeline fills and drains.
struct PlanShape {
  int fused_layers = 0;     // decoder blocks in the fused stage
  int forward_layers = 1;   // of a forward stage; the last has what is left
  int backward_layers = 1;  // of a backward stage; likewise
  // Lengths of the first forward and the last backward stages, from block 0 on.
  // A short stage computes, or is updated, before there is much of it.
  std::vector<int> first_layers;
  std::vector<int> last_layers;
  Saving saving;
  Widths widths;
  std::vector<int> first_widths;  // of the first forward slots, in order
  std::vector<int> last_widths;   // of the last backward slots, the last first
  int groups = 1;
  int look_ahead = 1;
  // Shares that even out what devices have to do (balanced_plan.h); else as
  // equal as the groups allow, by their number or by their micro-batches.
  bool balanced = false;
  bool by_micro_batches = false;
  // Only for a plan that is not balanced: the last share of a forward slot is
  // smaller by as much as the slowest device is slower than the fastest. It may
  // be left out. So the next slot does not wait for it.
  bool slow_share = false;

  friend bool operator==(const PlanShape&, const PlanShape&) = default;
};

// The same plan with a length and a width of its own for every stage, and none
// that isn't there.
PlanShape SpelledOut(const PlanShape& shape, int layers);

// REQUIRES: 0 <= fused_layers <= layers; everything else at least 1; no width
// above the number of devices.
StepPlan ShapePlan(const PlanShape& shape, const ModelCosts& costs,
                   const Machine& machine, int micro_batches);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SEARCH_PLAN_SHAPE_H_
