// The width-aware planner: searches stages, fused tail, widths and look-ahead
// for the plan whose simulated step is shortest.
//
// For the lengths of the fused tail that promise most, one thing after another
// is changed as long as the estimate (step_estimate.h) gets shorter; the best
// few are simulated, and the best of those is improved likewise by simulation.
// How much is tried is bounded by counted work, not by a clock, so the plan is
// a function of the arguments.
//
// Every plan considered fits into the devices' memory (device_memory.h).
//
// Pure function; thread-safe; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_SEARCH_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_SEARCH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "scheduler/simulate/machine.h"
#include "scheduler/simulate/model_costs.h"
#include "scheduler/simulate/step_plan.h"
#include "scheduler/simulate/step_simulator.h"

namespace roundhouse {

// A family of plans: stages of equal length, one width per direction, other
// widths for the first forward and the last backward slots, where the pipeline
// fills and drains.
struct PlanShape {
  int fused_layers = 0;     // decoder blocks in the fused stage
  int forward_layers = 1;   // of a forward stage; the last has what is left
  int backward_layers = 1;  // of a backward stage; likewise
  Widths widths;
  int first_slots = 0;
  int first_width = 1;
  int last_slots = 0;
  int last_width = 1;
  int groups = 1;
  int look_ahead = 1;

  friend bool operator==(const PlanShape&, const PlanShape&) = default;
};

// Shares in proportion to the devices' speeds.
// REQUIRES: 0 <= fused_layers <= layers; everything else at least 1, slots 0;
// no width above the number of devices.
StepPlan ShapePlan(const PlanShape& shape, const ModelCosts& costs,
                   const Machine& machine, int micro_batches);

struct SearchOptions {
  Contributions contributions = Contributions::kModelDtype;
  // How much to estimate, and to simulate: turns and layers of all plans'
  // parts.
  int64_t rank_work = 600'000;
  int64_t work = 60'000;
};

struct SearchResult {
  PlanShape shape;
  StepPlan plan;
  int64_t step_ns = 0;  // simulated
  int ranked = 0;       // plans estimated
  int simulated = 0;    // plans simulated
};

// INVALID_ARGUMENT for counts out of range (baselines.h); RESOURCE_EXHAUSTED
// when no plan of the family fits into the devices.
absl::StatusOr<SearchResult> SearchStepPlan(const ModelCosts& costs,
                                            const Machine& machine,
                                            int micro_batches,
                                            const SearchOptions& options);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_SEARCH_H_
