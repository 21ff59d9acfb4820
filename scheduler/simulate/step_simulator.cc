#include "scheduler/simulate/step_simulator.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "scheduler/simulate/dispatcher_feed.h"
#include "scheduler/simulate/step_run.h"

namespace roundhouse {
namespace {

Schedule SimulateRounds(const ModelCosts& costs, const Machine& machine,
                        const StepPlan& plan, const HostWork::Rounds& rounds,
                        const StepOptions& options) {
  const std::vector<SimulatedJob> jobs = {
      {&costs,
       RepeatedParts(PartsOf(plan, rounds.micro_batches), rounds.count(),
                     rounds.micro_batches),
       rounds}};
  if (options.ideas.prefetch) {
    FedJob job = {&costs, &plan, rounds};
    job.boundary_tensors = options.boundary_tensors;
    DispatcherFeed feed({job}, machine, {});
    return SimulateJobs(machine, jobs, options, {}, feed);
  }
  // The Dispatcher cannot send a part only once the one before is computed.
  EarliestFinishFeed feed(jobs[0].parts, costs, machine, 1);
  return SimulateJobs(machine, jobs, options, {}, feed);
}

absl::Status CheckSimulated(const ModelCosts& costs, const Machine& machine,
                            const StepPlan& plan, int micro_batches,
                            const StepOptions& options) {
  RETURN_IF_ERROR(CheckStepPlan(plan, costs.layers + 1, micro_batches,
                                machine.device_count()));
  if (!options.boundary_tensors.has_value()) return absl::OkStatus();
  const int64_t least = LeastBoundaryTensors(plan.stages, RowGradientOf(costs));
  if (*options.boundary_tensors >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the plan needs ", least, " boundary tensors, there are ",
                   *options.boundary_tensors));
}

}  // namespace

Schedule SimulateJobs(const Machine& machine,
                      const std::vector<SimulatedJob>& jobs,
                      const StepOptions& options,
                      const std::vector<DeviceLoss>& losses, PartFeed& feed) {
  return StepRun(machine, jobs, options, losses, feed).Run();
}

Schedule SimulateParts(const ModelCosts& costs, const Machine& machine,
                       const std::vector<Part>& parts, int micro_batches,
                       const StepOptions& options, PartFeed& feed) {
  HostWork::Rounds one;
  one.micro_batches = micro_batches;
  return SimulateJobs(machine, {{&costs, parts, one}}, options, {}, feed);
}

absl::StatusOr<Schedule> SimulateStep(const ModelCosts& costs,
                                      const Machine& machine,
                                      const StepPlan& plan, int micro_batches,
                                      const StepOptions& options) {
  RETURN_IF_ERROR(CheckSimulated(costs, machine, plan, micro_batches, options));
  HostWork::Rounds one;
  one.micro_batches = micro_batches;
  return SimulateRounds(costs, machine, plan, one, options);
}

std::vector<Part> RepeatedParts(const std::vector<Part>& parts, int rounds,
                                int micro_batches) {
  const int slots = parts.empty() ? 0 : parts.back().slot + 1;
  std::vector<Part> all;
  all.reserve(parts.size() * rounds);
  for (int round = 0; round < rounds; ++round) {
    for (Part part : parts) {
      part.slot += round * slots;
      part.micro_batches.begin += round * micro_batches;
      part.micro_batches.end += round * micro_batches;
      all.push_back(part);
    }
  }
  return all;
}

absl::Status CheckUpdates(Updates updates, int rounds, const Ideas& ideas) {
  if (!IsOnePass(updates) || (rounds == 1 && ideas.prefetch)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "one pass over steps of ", rounds, " rounds",
      ideas.prefetch ? "" : " without prefetch", ": expected one, with it"));
}

absl::StatusOr<Schedule> SimulateSteps(const ModelCosts& costs,
                                       const Machine& machine,
                                       const StepPlan& plan, int micro_batches,
                                       const StepsOptions& options) {
  RETURN_IF_ERROR(
      CheckSimulated(costs, machine, plan, micro_batches, options.step));
  if (options.steps < 1 || options.rounds < 1 ||
      options.steps > kMaxSimulatedRounds / options.rounds) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.steps, " steps of ", options.rounds,
                     " rounds: expected at least one each and at most ",
                     kMaxSimulatedRounds, " rounds in all"));
  }
  RETURN_IF_ERROR(
      CheckUpdates(options.updates, options.rounds, options.step.ideas));
  const HostWork::Rounds rounds{options.steps, options.rounds, micro_batches,
                                options.updates};
  return SimulateRounds(costs, machine, plan, rounds, options.step);
}

}  // namespace roundhouse
