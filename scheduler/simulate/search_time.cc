#include "scheduler/simulate/search_time.h"

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
  return options.updates == Updates::kStale ? 3 : 2;
}

int RoundsOfStep(const SearchOptions& options) {
  return std::min(options.rounds, 2);
}

// When the first `micro_batches` of the step are computed.
int64_t ComputedNs(const Schedule& schedule, int step, int micro_batches) {
  int64_t end_ns = 0;
  for (const Interval& interval : schedule.intervals) {
    if (interval.step == step && IsCompute(interval.kind) &&
        interval.micro_batch < micro_batches) {
      end_ns = std::max(end_ns, interval.end_ns);
    }
  }
  return end_ns;
}

// The last step's share of the time; a step's further rounds take as long as
// its second.
int64_t SteadyStepNs(const Schedule& schedule, int micro_batches,
                     const SearchOptions& options) {
  const int last = SimulatedSteps(options) - 1;
  const int rounds = RoundsOfStep(options);
  const int64_t step_ns = (ComputedNs(schedule, last, rounds * micro_batches) -
                           ComputedNs(schedule, 0, rounds * micro_batches)) /
                          last;
  if (options.rounds <= rounds) return step_ns;
  return step_ns + (options.rounds - rounds) *
                       (ComputedNs(schedule, last, 2 * micro_batches) -
                        ComputedNs(schedule, last, micro_batches));
}

StepOptions StepOf(const SearchOptions& options) {
  StepOptions step;
  step.contributions = options.contributions;
  step.split_at_rates = false;
  step.ideas = options.ideas;
  return step;
}

// REQUIRES: not an isolated step.
absl::StatusOr<Schedule> SimulateFew(const ModelCosts& costs,
                                     const Machine& machine,
                                     const StepPlan& plan, int micro_batches,
                                     int steps, double most_ns,
                                     const SearchOptions& options) {
  StepsOptions few;
  few.step = StepOf(options);
  // Of more rounds than are simulated only part of the time is seen.
  if (options.rounds == RoundsOfStep(options)) {
    few.step.give_up_ns = (steps - 1) * most_ns;
  }
  few.steps = steps;
  few.rounds = RoundsOfStep(options);
  few.updates = options.updates;
  return SimulateSteps(costs, machine, plan, micro_batches, few);
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
    return TimeOf(schedule, schedule.MakespanNs(), most_ns);
  }
  ASSIGN_OR_RETURN(const Schedule schedule,
                   SimulateFew(costs, machine, plan, micro_batches,
                               SimulatedSteps(options), most_ns, options));
  return TimeOf(schedule, SteadyStepNs(schedule, micro_batches, options),
                most_ns);
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
                   SimulateFew(costs, machine, plan, micro_batches,
                               kSettledSteps, most_ns, options));
  const int all = RoundsOfStep(options) * micro_batches;
  const int64_t ns = (ComputedNs(schedule, kSettledSteps - 1, all) -
                      ComputedNs(schedule, 0, all)) /
                     (kSettledSteps - 1);
  return TimeOf(schedule, ns, most_ns);
}

}  // namespace roundhouse
