#include "scheduler/search/jobs_together.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "scheduler/search/plan_shape.h"
#include "scheduler/search/step_search.h"
#include "scheduler/simulate/device_memory.h"
#include "scheduler/simulate/dispatcher_feed.h"
#include "scheduler/simulate/part_feed.h"
#include "scheduler/simulate/step_simulator.h"

namespace roundhouse {
namespace {

// What is tried of the second job: wide plans move more weights over the links
// that the first job needs, narrow ones wait for themselves on other devices.
constexpr int kWidths[] = {1, 2, 4, 8};
constexpr int kBlocks[] = {3, 4, 5, 9, 14, 28};
constexpr int64_t kGracesNs[] = {0, 1'500'000, 5'000'000, 20'000'000};

absl::StatusOr<StepPlan> SearchedPlan(const TogetherJob& job,
                                      const Machine& machine, Updates updates) {
  SearchOptions search;
  search.updates = updates;
  search.rounds = job.rounds;
  ASSIGN_OR_RETURN(
      const SearchResult found,
      SearchStepPlan(job.costs, machine, job.micro_batches, search));
  return found.plan;
}

std::vector<Part> PartsOfRounds(const TogetherJob& job, const StepPlan& plan,
                                int rounds) {
  return RepeatedParts(PartsOf(plan, job.micro_batches), rounds,
                       job.micro_batches);
}

Machine Without(Machine machine, int64_t device_bytes) {
  for (SimulatedDevice& device : machine.devices) {
    device.memory_bytes =
        std::max<int64_t>(0, device.memory_bytes - device_bytes);
  }
  return machine;
}

absl::StatusOr<double> AloneNs(const TogetherJob& job, const StepPlan& plan,
                               const TogetherOptions& options) {
  StepsOptions steps;
  steps.steps = options.steps;
  steps.rounds = job.rounds;
  steps.updates = options.updates;
  steps.step.intervals = Intervals::kWhole;
  ASSIGN_OR_RETURN(const Schedule schedule,
                   SimulateSteps(job.costs, options.machine, plan,
                                 job.micro_batches, steps));
  return static_cast<double>(schedule.MakespanNs()) / options.steps;
}

// Compute of a job until then.
double BusyNs(const Schedule& schedule, int job, int64_t until_ns) {
  int64_t busy_ns = 0;
  for (const Interval& interval : schedule.intervals) {
    if (interval.job != job || !IsCompute(interval.kind)) continue;
    busy_ns += std::max<int64_t>(
        0, std::min(interval.end_ns, until_ns) - interval.start_ns);
  }
  return static_cast<double>(busy_ns);
}

int64_t EndNs(const Schedule& schedule, int job) {
  int64_t end_ns = 0;
  for (const Interval& interval : schedule.intervals) {
    if (interval.job == job) end_ns = std::max(end_ns, interval.end_ns);
  }
  return end_ns;
}

std::vector<StepPlan> SecondPlans(const TogetherJob& job,
                                  const Machine& machine) {
  std::vector<StepPlan> plans;
  for (const int width : kWidths) {
    for (const int blocks : kBlocks) {
      PlanShape shape;
      const int parts =
          std::min({width, machine.device_count(), job.micro_batches});
      shape.widths = {parts, parts, parts};
      shape.forward_layers = shape.backward_layers =
          std::min(blocks, job.costs.layers);
      shape.groups = job.micro_batches;
      plans.push_back(ShapePlan(shape, job.costs, machine, job.micro_batches));
    }
  }
  return plans;
}

class Pair {
 public:
  Pair(const TogetherJob& first, const TogetherJob& second,
       const TogetherOptions& options)
      : first_(first), second_(second), options_(options) {}

  // REQUIRES of the others: it, or the next one, was OK.
  absl::Status Search() {
    ASSIGN_OR_RETURN(
        base_.first_plan,
        SearchedPlan(first_, Without(options_.machine, options_.second_bytes),
                     options_.updates));
    ASSIGN_OR_RETURN(const StepPlan first,
                     SearchedPlan(first_, options_.machine, options_.updates));
    ASSIGN_OR_RETURN(const StepPlan second,
                     SearchedPlan(second_, options_.machine, options_.updates));
    return NoteAlone(first, second);
  }

  absl::Status Take(const StepPlan& first, const StepPlan& second) {
    base_.first_plan = first;
    return NoteAlone(first, second);
  }

  // The best of the plans of the second job that fit, and of the graces, as
  // SimulateTogether says.
  absl::StatusOr<Together> Best(const std::vector<StepPlan>& plans) const;

 private:
  // What each takes under its plan.
  absl::Status NoteAlone(const StepPlan& first, const StepPlan& second) {
    ASSIGN_OR_RETURN(base_.first_alone_ns, AloneNs(first_, first, options_));
    ASSIGN_OR_RETURN(base_.second_alone_ns, AloneNs(second_, second, options_));
    // Enough for more than the first one's time.
    const double steps =
        1.5 * base_.first_alone_ns * options_.steps / base_.second_alone_ns;
    base_.second_steps = 1 + static_cast<int>(std::ceil(steps));
    return absl::OkStatus();
  }

  bool Fits(const StepPlan& plan) const {
    const std::vector<Part> parts = PartsOfRounds(second_, plan, 2);
    const Machine left = Left();
    return CheckDeviceMemory(parts, AssignDevices(parts, second_.costs, left),
                             second_.costs, left, plan.look_ahead)
        .ok();
  }

  Together Run(const StepPlan& plan, int64_t grace_ns) const {
    StepOptions step;
    step.backfill_grace_ns = grace_ns;
    Together result = base_;
    result.second_plan = plan;
    result.grace_ns = grace_ns;
    const HostWork::Rounds first{options_.steps, first_.rounds,
                                 first_.micro_batches, options_.updates};
    const HostWork::Rounds second{result.second_steps, second_.rounds,
                                  second_.micro_batches, options_.updates};
    DispatcherFeed feed(
        {{&first_.costs, &result.first_plan, first},
         {&second_.costs, &result.second_plan, second, Priority::kBackfill}},
        options_.machine, {});
    result.schedule = SimulateJobs(
        options_.machine,
        {{&first_.costs,
          PartsOfRounds(first_, result.first_plan, first.count()), first},
         {&second_.costs, PartsOfRounds(second_, plan, second.count()),
          second}},
        step, {}, feed);
    Measure(result);
    return result;
  }

  Machine Left() const {
    const std::vector<Part> parts = PartsOfRounds(first_, base_.first_plan, 2);
    int64_t most = 0;
    for (const DevicePeak& peak : DevicePeaks(
             parts, AssignDevices(parts, first_.costs, options_.machine),
             first_.costs, options_.machine.device_count(),
             base_.first_plan.look_ahead)) {
      most = std::max(most, peak.bytes);
    }
    return Without(options_.machine, most);
  }

  void Measure(Together& result) const {
    const Schedule& schedule = result.schedule;
    const int64_t end_ns = EndNs(schedule, 0);
    const auto together_ns = static_cast<double>(end_ns);
    result.first_ns = together_ns / options_.steps;
    result.second_done = result.second_steps * BusyNs(schedule, 1, end_ns) /
                         BusyNs(schedule, 1, schedule.MakespanNs());
    result.goodput = (result.first_alone_ns * options_.steps +
                      result.second_alone_ns * result.second_done) /
                     together_ns;
    for (const int64_t idle_ns : schedule.ready_idle_ns) {
      result.ready_idle_percent =
          std::max(result.ready_idle_percent,
                   100 * static_cast<double>(idle_ns) /
                       static_cast<double>(schedule.shared_ns));
    }
  }

  const TogetherJob& first_;
  const TogetherJob& second_;
  const TogetherOptions& options_;
  Together base_;
};

absl::StatusOr<Together> Pair::Best(const std::vector<StepPlan>& plans) const {
  std::optional<Together> best;
  const auto rank = [&](const Together& result) {
    const double longer = result.first_ns / result.first_alone_ns - 1;
    const bool too_long = longer > options_.most_longer;
    return std::tuple{too_long, too_long ? longer : 0,
                      result.ready_idle_percent > options_.most_idle_percent,
                      -result.goodput};
  };
  for (const StepPlan& plan : plans) {
    if (!Fits(plan)) continue;
    for (const int64_t grace_ns : kGracesNs) {
      Together result = Run(plan, grace_ns);
      if (!best.has_value() || rank(result) < rank(*best)) {
        best = std::move(result);
      }
    }
  }
  if (best.has_value()) return *std::move(best);
  return absl::ResourceExhaustedError(absl::StrCat(
      "no plan of ", second_.costs.name, " fits beside ", first_.costs.name));
}

}  // namespace

absl::StatusOr<Together> SimulateTogether(const TogetherJob& first,
                                          const TogetherJob& second,
                                          const TogetherOptions& options) {
  Pair pair(first, second, options);
  RETURN_IF_ERROR(pair.Search());
  return pair.Best(SecondPlans(second, options.machine));
}

absl::StatusOr<Together> SimulateTogether(const TogetherJob& first,
                                          const StepPlan& first_plan,
                                          const TogetherJob& second,
                                          const StepPlan& second_plan,
                                          const TogetherOptions& options) {
  Pair pair(first, second, options);
  RETURN_IF_ERROR(pair.Take(first_plan, second_plan));
  return pair.Best({second_plan});
}

}  // namespace roundhouse
