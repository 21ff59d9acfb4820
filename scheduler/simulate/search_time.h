// How long a plan's step takes, by simulations as long as a search can afford
// (SimulatedStepNs, step_search.h) or longer.
//
// Pure functions; thread-safe; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_SEARCH_TIME_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_SEARCH_TIME_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "scheduler/simulate/step_search.h"

namespace roundhouse {

// Rounds that SimulatedStepNs and SettledStepNs simulate.
int SimulatedRounds(const SearchOptions& options);
int SettledRounds(const SearchOptions& options);

// Of many consecutive steps: what is queued up in two of them may hold up the
// later ones.  REQUIRES: not an isolated step.  Errors as SimulatedStepNs.
absl::StatusOr<int64_t> SettledStepNs(const ModelCosts& costs,
                                      const Machine& machine,
                                      const StepPlan& plan, int micro_batches,
                                      const SearchOptions& options);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_SEARCH_TIME_H_
