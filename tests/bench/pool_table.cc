// pool_table: what steps lose, in virtual time, where a job has fewer blocks
// for the activations and gradients between its stages than three slots a
// device need, and where fewer inputs of backward stages are kept.
//
//   bazel run //tests/bench:pool_table
//
// GiB of a round of 16 micro-batches on eight devices; docs/design/memory.md
// explains the columns.

#include <iostream>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "scheduler/plan/boundary_tensors.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/search/step_search.h"
#include "scheduler/simulate/dispatcher_feed.h"
#include "tests/bench/costs_file.h"

namespace roundhouse::bench {
namespace {

constexpr int kDevices = 8;
constexpr int kMicroBatches = 16;
// Three slots a device, two, one, and the running one with the next.
constexpr int kSlotsAhead[] = {24, 16, 8, kLeastSlotsAhead};

// Saving::every.
constexpr int kSavedEvery[] = {1, 2, 3, 4, 8};

double LongerPercent(int64_t ns, int64_t usual_ns) {
  return 100.0 * (static_cast<double>(ns) / static_cast<double>(usual_ns) - 1);
}

// For all of a round's micro-batches.
double GiB(int64_t tensors, const ModelCosts& costs) {
  return static_cast<double>(tensors * kMicroBatches * costs.element_bytes *
                             costs.tokens * costs.hidden) /
         (1 << 30);
}

absl::Status PrintRow(const ModelCosts& costs, const Machine& machine) {
  SearchOptions options;
  options.updates = Updates::kClipped;
  ASSIGN_OR_RETURN(const SearchResult best,
                   SearchStepPlan(costs, machine, kMicroBatches, options));
  const Plan plan = PlanOfFullRound(best.plan, kMicroBatches);
  const RowGradient rows = RowGradientOf(costs);
  std::cerr << "pool_table: " << costs.name << ": " << ToString(best.plan)
            << "\n";
  // As jobs had them before they had pools.
  const BoundaryMap map = MapOf(plan, RoundKind::kTrain, rows);
  std::cout << absl::StrFormat(
      "| %s | %.1f |", costs.name,
      GiB(static_cast<int64_t>(2 * map.tensors.size()), costs));
  for (const int ahead : kSlotsAhead) {
    const int64_t tensors = BoundaryTensors(plan, rows, ahead);
    options.boundary_tensors = tensors;
    ASSIGN_OR_RETURN(
        const int64_t ns,
        SimulatedStepNs(costs, machine, best.plan, kMicroBatches, options));
    std::cout << absl::StrFormat(" %.1f (%+.2f %%) |", GiB(tensors, costs),
                                 LongerPercent(ns, best.step_ns));
  }
  std::cout << "\n";
  return absl::OkStatus();
}

// The stages that the search finds where all are kept, with three slots a
// device.
absl::Status PrintSavedRow(const ModelCosts& costs, const Machine& machine) {
  SearchOptions options;
  options.updates = Updates::kClipped;
  ASSIGN_OR_RETURN(const SearchResult best,
                   SearchStepPlan(costs, machine, kMicroBatches, options));
  std::cout << "| " << costs.name << " |";
  for (const int every : kSavedEvery) {
    PlanShape shape = best.shape;
    shape.saving.every = every;
    const StepPlan plan = ShapePlan(shape, costs, machine, kMicroBatches);
    ASSIGN_OR_RETURN(const int64_t ns, SimulatedStepNs(costs, machine, plan,
                                                       kMicroBatches, options));
    const int64_t tensors =
        BoundaryTensors(PlanOfFullRound(plan, kMicroBatches),
                        RowGradientOf(costs), kSlotsAhead[0]);
    std::cout << absl::StrFormat(" %.1f (%+.1f %%) |", GiB(tensors, costs),
                                 LongerPercent(ns, best.step_ns));
  }
  std::cout << "\n";
  return absl::OkStatus();
}

absl::Status Run() {
  ASSIGN_OR_RETURN(const std::vector<ModelCosts> models,
                   ReadCostsFile("bubble_inputs.csv"));
  Machine machine;
  machine.devices.resize(kDevices);
  std::cout << "| model | two rounds |";
  for (const int ahead : kSlotsAhead) std::cout << " " << ahead << " ahead |";
  std::cout << "\n|---|---:|---:|---:|---:|---:|\n";
  for (const ModelCosts& costs : models) {
    RETURN_IF_ERROR(PrintRow(costs, machine));
  }
  std::cout << "\n| model | all saved |";
  for (const int every : kSavedEvery) {
    if (every > 1) std::cout << " every " << every << " |";
  }
  std::cout << "\n|---|---:|---:|---:|---:|---:|\n";
  for (const ModelCosts& costs : models) {
    RETURN_IF_ERROR(PrintSavedRow(costs, machine));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace roundhouse::bench

int main() {
  return roundhouse::bench::ExitStatus("pool_table", roundhouse::bench::Run());
}
