// Two jobs on one server in virtual time, through one Dispatcher: one that goes
// first, and one that gets what it leaves (Priority::kBackfill).
//
// Pure function; thread-safe; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SEARCH_JOBS_TOGETHER_H_
#define ROUNDHOUSE_SCHEDULER_SEARCH_JOBS_TOGETHER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/part_time.h"
#include "scheduler/simulate/host_work.h"
#include "scheduler/simulate/schedule.h"

namespace roundhouse {

struct TogetherJob {
  ModelCosts costs;
  int micro_batches = 1;  // of a round
  int rounds = 1;         // of a step
};

struct TogetherOptions {
  Machine machine;
  int steps = 10;  // of the first job
  Updates updates = Updates::kAsReduced;
  // The bytes of every device that the first job's plan leaves for the second
  // one.
  int64_t second_bytes = 3'600'000'000;
  // How much longer the first job's steps may take beside the second one, and
  // how long a device may be idle while a part could compute there.
  double most_longer = 0.03;
  double most_idle_percent = 1;
};

struct Together {
  StepPlan first_plan;
  StepPlan second_plan;
  int64_t grace_ns = 0;  // of the second job (StepOptions::backfill_grace_ns)
  // A step's time, of each job alone and of the first one beside the other.
  double first_alone_ns = 0;
  double second_alone_ns = 0;
  double first_ns = 0;
  // Steps of the second job while the first one ran.
  int second_steps = 0;  // simulated
  double second_done = 0;
  // The time of what both did one job after the other, over the time together.
  double goodput = 0;
  // The idle time, while a part could compute there, of the device that idled
  // so longest; in per cent of the time together.
  double ready_idle_percent = 0;
  Schedule schedule;  // of both, until each has ended
};

// The first job's plan is searched, alone with all memory, beside the second
// one with less.  Of a few plans of the second job (a width, blocks a stage),
// each with a few graces, the one of the greatest goodput within `most_longer`
// and `most_idle_percent`; where none keeps the latter, of all within the
// first; where there is none, the one under which the first job takes least.
// INVALID_ARGUMENT and RESOURCE_EXHAUSTED as SearchStepPlan: the parts of both
// fit into the devices side by side.
absl::StatusOr<Together> SimulateTogether(const TogetherJob& first,
                                          const TogetherJob& second,
                                          const TogetherOptions& options);
// The same under these plans, alone and together.
absl::StatusOr<Together> SimulateTogether(const TogetherJob& first,
                                          const StepPlan& first_plan,
                                          const TogetherJob& second,
                                          const StepPlan& second_plan,
                                          const TogetherOptions& options);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SEARCH_JOBS_TOGETHER_H_
