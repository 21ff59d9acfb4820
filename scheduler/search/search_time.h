// How long a plan's step takes, by simulations as long as a search can afford
// (SimulatedStepNs, step_search.h) or longer.
//
// Pure functions; thread-safe; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SEARCH_SEARCH_TIME_H_
#define ROUNDHOUSE_SCHEDULER_SEARCH_SEARCH_TIME_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "scheduler/search/step_search.h"

namespace roundhouse {

// Rounds that StepTimeUpTo and SettledTimeUpTo simulate.
int SimulatedRounds(const SearchOptions& options);
int SettledRounds(const SearchOptions& options);

// A plan's step as far as somebody wants to know it.
struct StepTime {
  std::optional<int64_t> ns;  // none: more than the most that was asked for
  double simulated = 1;       // share of the simulation that it took
};

// As SimulatedStepNs.
absl::StatusOr<StepTime> StepTimeUpTo(double most_ns, const ModelCosts& costs,
                                      const Machine& machine,
                                      const StepPlan& plan, int micro_batches,
                                      const SearchOptions& options);

// The time of many consecutive steps: what queues up in two of them may hold up
// the later ones. REQUIRES: not an isolated step. Errors as SimulatedStepNs.
absl::StatusOr<StepTime> SettledTimeUpTo(
    double most_ns, const ModelCosts& costs, const Machine& machine,
    const StepPlan& plan, int micro_batches, const SearchOptions& options);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SEARCH_SEARCH_TIME_H_
