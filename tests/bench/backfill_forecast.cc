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
#include "scheduler/search/jobs_together.h"
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

absl::StatusOr<StepPlan> ReadPlan(const ModelCosts& costs,
                                  const std::string& text) {
  const int micro_batches = absl::GetFlag(FLAGS_micro_batches);
  ASSIGN_OR_RETURN(const Plan parsed, ParsePlanJson(text, costs.layers));
  const StepPlan plan = PlanOfRound(parsed, micro_batches, micro_batches);
  RETURN_IF_ERROR(CheckStepPlan(plan, costs.layers + 1, micro_batches,
                                absl::GetFlag(FLAGS_devices)));
  return plan;
}

absl::Status Run() {
  ASSIGN_OR_RETURN(const std::vector<fakes::LayerCost> layers,
                   fakes::ReadLayerCosts(absl::GetFlag(FLAGS_costs), 1));
  const TogetherJob job{CostsOf(layers), absl::GetFlag(FLAGS_micro_batches)};
  ASSIGN_OR_RETURN(const StepPlan first,
                   ReadPlan(job.costs, absl::GetFlag(FLAGS_first)));
  ASSIGN_OR_RETURN(const StepPlan second,
                   ReadPlan(job.costs, absl::GetFlag(FLAGS_second)));
  TogetherOptions options;
  options.machine = TheMachine();
  options.steps = absl::GetFlag(FLAGS_steps);
  options.updates = Updates::kClipped;
  ASSIGN_OR_RETURN(const Together both,
                   SimulateTogether(job, first, job, second, options));
  std::cout << absl::StrFormat(
      R"({"first_ms": %.3f, "second_ms": %.3f, "beside_ms": %.3f, )"
      R"("second_rate": %.4f})"
      "\n",
      both.first_alone_ns * 1e-6, both.second_alone_ns * 1e-6,
      both.first_ns * 1e-6,
      both.second_done * both.second_alone_ns /
          (both.first_ns * options.steps));
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
