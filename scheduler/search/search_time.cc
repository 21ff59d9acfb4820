#include "scheduler/search/search_time.h"

#include <algorithm>
#include <limits>

#include "base/status.h"

namespace roundhouse {
namespace {

// Until consecutive steps take one as long as the other.
constexpr int kSettledSteps = 6;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// A stale update shows in the step after the next.
int SimulatedSteps(const SearchOptions& options) {
  if (options.updates == Updates::kNone) return 1;
  return IsStale(options.updates) ? 3 : 2;
}

int RoundsOfStep(const SearchOptions& options) {
  return std::min(options.rounds, 2);
}

// When a step's rounds are computed.
int64_t ComputedNs(const Schedule& schedule, int step, int rounds) {
  const auto first = schedule.computed_ns.begin() + step * rounds;
  return *std::max_element(first, first + rounds);
}

// The last step's share of the time; a step's further rounds take as long as
// its second.
int64_t SteadyStepNs(const Schedule& schedule, const SearchOptions& options) {
  const int last = SimulatedSteps(options) - 1;
  const int rounds = RoundsOfStep(options);
  const int64_t end_ns = ComputedNs(schedule, last, rounds);
  const int64_t step_ns = (end_ns - ComputedNs(schedule, 0, rounds)) / last;
  if (options.rounds <= rounds) return step_ns;
  return step_ns + (options.rounds - rounds) *
                       (end_ns - schedule.computed_ns[last * rounds]);
}

StepOptions StepOf(const SearchOptions& options) {
  StepOptions step;
  step.contributions = options.contributions;
  step.intervals = Intervals::kNone;
  step.ideas = options.ideas;
  step.fused = options.fused;
  step.boundary_tensors = options.boundary_tensors;
  return step;
}

// REQUIRES: not an isolated step.
StepsOptions FewSteps(int steps, double most_ns, const SearchOptions& options) {
  StepsOptions few;
  few.step = StepOf(options);
  // If a step has more rounds than are simulated, only part of its time is
  // seen.
  if (options.rounds == RoundsOfStep(options)) {
    few.step.give_up_ns = (steps - 1) * most_ns;
  }
  few.steps = steps;
  few.rounds = RoundsOfStep(options);
  few.updates = options.updates;
  return few;
}

StepTime TimeOf(const Schedule& schedule, int64_t ns, double most_ns) {
  StepTime time;
  time.simulated = 1 - schedule.missing;
  if (schedule.missing == 0 && static_cast<double>(ns) <= most_ns) time.ns = ns;
  return time;
}

}  // namespace

int SimulatedRounds(const SearchOptions& options) {
  return SimulatedSteps(options) * RoundsOfStep(options);
}

int SettledRounds(const SearchOptions& options) {
  return kSettledSteps * RoundsOfStep(options);
}

absl::StatusOr<StepTime> StepTimeUpTo(double most_ns, const ModelCosts& costs,
                                      const Machine& machine,
                                      const StepPlan& plan, int micro_batches,
                                      const SearchOptions& options) {
  if (options.updates == Updates::kNone) {
    StepOptions step = StepOf(options);
    step.give_up_ns = most_ns;
    ASSIGN_OR_RETURN(const Schedule schedule,
                     SimulateStep(costs, machine, plan, micro_batches, step));
    return TimeOf(schedule, schedule.end_ns, most_ns);
  }
  ASSIGN_OR_RETURN(
      const Schedule schedule,
      SimulateSteps(costs, machine, plan, micro_batches,
                    FewSteps(SimulatedSteps(options), most_ns, options)));
  return TimeOf(schedule, SteadyStepNs(schedule, options), most_ns);
}

absl::StatusOr<int64_t> SimulatedStepNs(const ModelCosts& costs,
                                        const Machine& machine,
                                        const StepPlan& plan, int micro_batches,
                                        const SearchOptions& options) {
  ASSIGN_OR_RETURN(
      const StepTime time,
      StepTimeUpTo(kNoLimit, costs, machine, plan, micro_batches, options));
  return *time.ns;
}

absl::StatusOr<StepTime> SettledTimeUpTo(
    double most_ns, const ModelCosts& costs, const Machine& machine,
    const StepPlan& plan, int micro_batches, const SearchOptions& options) {
  ASSIGN_OR_RETURN(const Schedule schedule,
                   SimulateSteps(costs, machine, plan, micro_batches,
                                 FewSteps(kSettledSteps, most_ns, options)));
  const int rounds = RoundsOfStep(options);
  const int64_t ns = (ComputedNs(schedule, kSettledSteps - 1, rounds) -
                      ComputedNs(schedule, 0, rounds)) /
                     (kSettledSteps - 1);
  return TimeOf(schedule, ns, most_ns);
}

}  // namespace roundhouse
