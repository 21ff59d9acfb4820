// The width-aware planner: searches stages, fused tail, widths and look-ahead
// for the plan whose simulated step is shortest: an isolated one, or one of
// many consecutive steps, which is another plan where updates crowd host
// memory.
//
// For the lengths of the fused tail that promise most, one thing after another
// is changed as long as the estimate (step_estimate.h) gets shorter.  What
// comes out, of each kind of plan met on the way the best, and a few that are
// far from all of those (SearchShapes::FarStarts) are simulated; the best is
// improved by simulation, the change with the shortest estimate first, then in
// the lengths of its first forward and last backward stages, at last in single
// stages and slots, by changes that are drawn.  After that the best of other
// kinds are improved.  Of consecutive steps the few shortest are told apart by
// more of them.  A simulation ends once its plan is certain not to be wanted.
// How much is tried is bounded by counted work, not by a clock, so the plan is
// a function of the arguments.  A plan that comes up again counts as before,
// but its times are known.
//
// Every plan considered fits into the devices' memory (device_memory.h).
//
// Pure functions; thread-safe; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SEARCH_STEP_SEARCH_H_
#define ROUNDHOUSE_SCHEDULER_SEARCH_STEP_SEARCH_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/part_time.h"
#include "scheduler/search/plan_shape.h"
#include "scheduler/simulate/step_simulator.h"

namespace roundhouse {

struct SearchOptions {
  Contributions contributions = Contributions::kModelDtype;
  // kNone: an isolated step of one round.
  Updates updates = Updates::kNone;
  int rounds = 1;
  // The groups of every plan, which decide a job's bits. 0: as many as it
  // wants.
  int groups = 0;
  int most_look_ahead = 3;
  Saving saving;  // of every plan
  // As StepOptions'.  REQUIRES: `accepts` refuses plans that need more.
  std::optional<int64_t> boundary_tensors = {};
  // Whether whoever is to run the plan can; null: any that fits the devices.
  std::function<bool(const StepPlan&)> accepts;
  Ideas ideas;
  FusedSlots fused = FusedSlots::kWhole;
  // How much to estimate, and to simulate: laps and layers of all plans'
  // parts.
  int64_t rank_work = 900'000;
  int64_t work = 80'000;
  // To simulate for the lengths of the stages at the ends, after all else.
  int64_t ends_work = 12'000;
  // To simulate for single stages and slots, at last.
  int64_t stages_work = 12'000;
  // To simulate from the best plans of other kinds.
  int64_t others_work = 40'000;
};

struct SearchResult {
  PlanShape shape;
  StepPlan plan;
  // Simulated: the isolated step, or what another step takes.
  int64_t step_ns = 0;
  // How often it was estimated, and simulated.
  int ranked = 0;
  int simulated = 0;
};

// INVALID_ARGUMENT for counts out of range (machine.h) and what CheckUpdates
// (step_simulator.h) refuses; RESOURCE_EXHAUSTED
// when no plan of the family fits into the devices, or is accepted.
absl::StatusOr<SearchResult> SearchStepPlan(const ModelCosts& costs,
                                            const Machine& machine,
                                            int micro_batches,
                                            const SearchOptions& options);

// By what the search compares plans: SearchResult::step_ns of any plan.
// INVALID_ARGUMENT for one that CheckStepPlan refuses.
absl::StatusOr<int64_t> SimulatedStepNs(const ModelCosts& costs,
                                        const Machine& machine,
                                        const StepPlan& plan, int micro_batches,
                                        const SearchOptions& options);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SEARCH_STEP_SEARCH_H_
