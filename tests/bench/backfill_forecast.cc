// backfill_forecast: what tests/bench/backfill.py should find, in virtual time
// (scheduler/simulate): two jobs of one model, with links and host work that
// take no time, by one Dispatcher.
//
//   backfill_forecast --costs costs.csv --first '{"forward": ...}'
//       --second '{"forward": ...}' --micro_batches 8
//
// Prints a line of JSON: milliseconds of a step of each job alone, of the first
// one beside the second, and the second one's steps a second beside the first,
// over those alone.

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/step_plan.h"
#include "scheduler/simulate/dispatcher_feed.h"
#include "scheduler/simulate/step_simulator.h"
#include "tests/bench/model_inputs.h"
#include "tests/fakes/layer_costs.h"

ABSL_FLAG(std::string, costs, "", "tests/fakes/layer_costs.h");
ABSL_FLAG(std::string, first, "", "the first job's plan, as a job file has it");
ABSL_FLAG(std::string, second, "", "the backfill job's");
ABSL_FLAG(int, micro_batches, 8, "of a step of each, in one round");
ABSL_FLAG(int, devices, 8, "");
ABSL_FLAG(int, steps, 20, "of the first job");

namespace roundhouse::bench {
namespace {

// As together_table has them (scheduler/search/jobs_together.h): of the graces
// the one with which the second job gets most while the first one's steps are
// at most so much longer; with the first where there is none.
constexpr int64_t kGracesNs[] = {0, 1'500'000, 5'000'000, 20'000'000};
constexpr double kMostLonger = 1.03;

struct Job {
  ModelCosts costs;
  StepPlan plan;
  int steps = 0;
};

ModelCosts CostsOf(const std::vector<fakes::LayerCost>& layers) {
  ModelCosts costs;
  costs.name = "fake";
  costs.layers = static_cast<int>(layers.size()) - 1;
  costs.forward_ns = layers.front().forward_ns;
  costs.backward_ns = layers.front().backward_ns;
  costs.head_forward_ns = layers.back().forward_ns;
  costs.head_backward_ns = layers.back().backward_ns;
  // Next to nothing.
  costs.tokens = costs.hidden = costs.heads = costs.kv_heads = costs.head_dim =
      costs.inner = 1;
  return costs;
}

Machine TheMachine() {
  Machine machine;
  machine.devices.resize(absl::GetFlag(FLAGS_devices));
  machine.link_rate = 1e6;
  machine.host_rate = 1e6;
  return machine;
}

// One that is alone is a normal job, the second one of two a backfill job.
Schedule Simulate(const std::vector<Job>& jobs, int64_t grace_ns = 0) {
  const int micro_batches = absl::GetFlag(FLAGS_micro_batches);
  const Machine machine = TheMachine();
  std::vector<FedJob> fed;
  std::vector<SimulatedJob> simulated;
  for (const Job& job : jobs) {
    const HostWork::Rounds rounds{job.steps, 1, micro_batches,
                                  Updates::kClipped};
    fed.push_back({&job.costs, &job.plan, rounds,
                   fed.empty() ? JobClass::kNormal : JobClass::kBackfill});
    simulated.push_back({&job.costs,
                         RepeatedParts(PartsOf(job.plan, micro_batches),
                                       job.steps, micro_batches),
                         rounds});
  }
  StepOptions step;
  step.intervals = Intervals::kWhole;
  step.backfill_grace_ns = grace_ns;
  DispatcherFeed feed(fed, machine, {});
  return SimulateJobs(machine, simulated, step, {}, feed);
}

int64_t EndNs(const Schedule& schedule, int job) {
  int64_t end_ns = 0;
  for (const Interval& interval : schedule.intervals) {
    if (interval.job == job) end_ns = std::max(end_ns, interval.end_ns);
  }
  return end_ns;
}

double BusyNs(const Schedule& schedule, int job, int64_t until_ns) {
  int64_t busy_ns = 0;
  for (const Interval& interval : schedule.intervals) {
    if (interval.job != job || !IsCompute(interval.kind)) continue;
    busy_ns += std::max<int64_t>(
        0, std::min(interval.end_ns, until_ns) - interval.start_ns);
  }
  return static_cast<double>(busy_ns);
}

absl::StatusOr<Job> ReadJob(const ModelCosts& costs, const std::string& plan,
                            int steps) {
  const int micro_batches = absl::GetFlag(FLAGS_micro_batches);
  ASSIGN_OR_RETURN(const Plan parsed, ParsePlanJson(plan, costs.layers));
  Job job{costs, PlanOfRound(parsed, micro_batches, micro_batches), steps};
  RETURN_IF_ERROR(CheckStepPlan(job.plan, costs.layers + 1, micro_batches,
                                absl::GetFlag(FLAGS_devices)));
  return job;
}

absl::Status Run() {
  const int steps = absl::GetFlag(FLAGS_steps);
  ASSIGN_OR_RETURN(const std::vector<fakes::LayerCost> layers,
                   fakes::ReadLayerCosts(absl::GetFlag(FLAGS_costs), 1));
  const ModelCosts costs = CostsOf(layers);
  ASSIGN_OR_RETURN(Job first,
                   ReadJob(costs, absl::GetFlag(FLAGS_first), steps));
  ASSIGN_OR_RETURN(Job second,
                   ReadJob(costs, absl::GetFlag(FLAGS_second), steps));
  const double first_ns = EndNs(Simulate({first}), 0) / double(steps);
  const double second_ns = EndNs(Simulate({second}), 0) / double(steps);
  // Enough for more than the first one's time.
  second.steps = 2 + static_cast<int>(2 * steps * first_ns / second_ns);
  double beside_ns = 0;
  double rate = 0;
  for (const int64_t grace_ns : kGracesNs) {
    const Schedule both = Simulate({first, second}, grace_ns);
    const int64_t end_ns = EndNs(both, 0);
    const double step_ns = static_cast<double>(end_ns) / steps;
    if (beside_ns != 0 && step_ns > kMostLonger * first_ns) continue;
    const double done = second.steps * BusyNs(both, 1, end_ns) /
                        BusyNs(both, 1, both.MakespanNs());
    const double found = done * second_ns / static_cast<double>(end_ns);
    if (found <= rate) continue;
    rate = found;
    beside_ns = step_ns;
  }
  std::cout << absl::StrFormat(
      R"({"first_ms": %.3f, "second_ms": %.3f, "beside_ms": %.3f, )"
      R"("second_rate": %.4f})"
      "\n",
      first_ns * 1e-6, second_ns * 1e-6, beside_ns * 1e-6, rate);
  return absl::OkStatus();
}

}  // namespace
}  // namespace roundhouse::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = roundhouse::bench::Run();
  if (status.ok()) return 0;
  std::cerr << "backfill_forecast: " << status.message() << "\n";
  return 1;
}
