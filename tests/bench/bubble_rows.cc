#include "tests/bench/bubble_rows.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "scheduler/plan/part_time.h"
#include "scheduler/plan/published_planner.h"
#include "scheduler/search/step_search.h"
#include "scheduler/simulate/checker.h"
#include "scheduler/simulate/device_memory.h"
#include "scheduler/simulate/part_feed.h"
#include "scheduler/simulate/step_simulator.h"
#include "tests/published/baselines.h"

namespace roundhouse::bench {
namespace {

absl::Status InRow(const absl::Status& status, const ModelCosts& costs,
                   absl::string_view schedule) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(costs.name, ", ", schedule,
                                                  ": ", status.message()));
}

CheckOptions Checks(const BubbleOptions& options) {
  CheckOptions checks;
  checks.machine = options.machine;
  checks.micro_batches = options.micro_batches;
  return checks;
}

// RoundPipe's own planner, where nothing is published.
absl::StatusOr<Plan> PlanRoundpipe(const ModelCosts& costs,
                                   const Machine& machine) {
  PlannerOptions options;
  options.device_count = machine.device_count();
  options.device_memory_bytes = machine.devices[0].memory_bytes;
  for (const SimulatedDevice& device : machine.devices) {
    options.device_memory_bytes =
        std::min(options.device_memory_bytes, device.memory_bytes);
  }
  std::vector<LayerCost> layers;
  for (int layer = 0; layer <= costs.head(); ++layer) {
    LayerCost cost;
    cost.forward_time = absl::Nanoseconds(costs.RecomputeNs(layer));
    const int64_t recompute_ns = layer == costs.head()
                                     ? costs.head_forward_ns
                                     : costs.RecomputeNs(layer);
    cost.backward_time =
        absl::Nanoseconds(recompute_ns + costs.BackwardNs(layer));
    cost.parameter_bytes = costs.WeightBytes(layer);
    cost.trainable_bytes = costs.GradientBytes(layer);
    layers.push_back(cost);
  }
  return PublishedPlan(layers, options);
}

const PublishedPartition* Published(const ModelCosts& costs, Baseline baseline,
                                    const BubbleOptions& options) {
  if (options.machine.device_count() != kPublishedDevices) return nullptr;
  return FindPartition(options.partitions, costs.name, baseline);
}

absl::StatusOr<Plan> RoundpipeStages(const ModelCosts& costs,
                                     const BubbleOptions& options) {
  const auto* published = Published(costs, Baseline::kRoundpipe, options);
  return published == nullptr ? PlanRoundpipe(costs, options.machine)
                              : RoundpipePlan(*published, costs);
}

absl::StatusOr<Stages> PlacedBaselineStages(const ModelCosts& costs,
                                            Baseline baseline,
                                            const BubbleOptions& options) {
  const auto* published = Published(costs, baseline, options);
  if (published != nullptr) return PlacedStages(*published, costs);
  return BalancedStages(baseline, costs, options.machine.device_count());
}

absl::StatusOr<BubbleRow> BaselineRow(const ModelCosts& costs,
                                      Baseline baseline,
                                      const BubbleOptions& options) {
  const int devices = options.machine.device_count();
  BubbleRow row;
  const absl::Time begin = absl::Now();
  if (baseline == Baseline::kRoundpipe) {
    ASSIGN_OR_RETURN(const Plan plan, RoundpipeStages(costs, options));
    row.plan_time = absl::Now() - begin;
    ASSIGN_OR_RETURN(row.result, SimulateRoundpipe(costs, plan, devices,
                                                   options.micro_batches));
  } else {
    ASSIGN_OR_RETURN(const Stages stages,
                     PlacedBaselineStages(costs, baseline, options));
    row.plan_time = absl::Now() - begin;
    ASSIGN_OR_RETURN(row.result,
                     SimulatePlacedBaseline(baseline, costs, stages, devices,
                                            options.micro_batches));
  }
  CheckOptions checks = Checks(options);
  checks.head_forward_waits = baseline != Baseline::kRoundpipe;
  RETURN_IF_ERROR(CheckPublishedSchedule(row.result, costs, checks));
  return row;
}

absl::StatusOr<BubbleRow> AllWideRow(const ModelCosts& costs,
                                     const BubbleOptions& options) {
  BubbleRow row;
  ASSIGN_OR_RETURN(row.result,
                   SimulateAllWide(costs, options.machine.device_count(),
                                   options.micro_batches));
  RETURN_IF_ERROR(CheckPublishedSchedule(row.result, costs, Checks(options)));
  return row;
}

// Devices of other speeds than the measured one are not in the published rules.
bool HasPublishedRules(const Machine& machine) {
  for (const SimulatedDevice& device : machine.devices) {
    if (device.speed != 1) return false;
  }
  return true;
}

bool Passes(absl::string_view filter, absl::string_view name) {
  return filter.empty() || filter == name;
}

absl::Status AddPublished(const ModelCosts& costs, const BubbleOptions& options,
                          std::vector<BubbleRow>& rows) {
  if (!HasPublishedRules(options.machine)) return absl::OkStatus();
  for (const Baseline baseline : kBaselines) {
    if (!Passes(options.schedule, BaselineName(baseline))) continue;
    auto row = BaselineRow(costs, baseline, options);
    RETURN_IF_ERROR(InRow(row.status(), costs, BaselineName(baseline)));
    row->schedule = std::string(BaselineName(baseline));
    row->rules = "published";
    rows.push_back(*std::move(row));
  }
  if (!Passes(options.schedule, "all-wide")) return absl::OkStatus();
  auto row = AllWideRow(costs, options);
  RETURN_IF_ERROR(InRow(row.status(), costs, "all-wide"));
  row->schedule = "all-wide";
  row->rules = "published";
  rows.push_back(*std::move(row));
  return absl::OkStatus();
}

// --- rules transfers, transfers4 ---

struct StepRules {
  std::string name;
  Contributions contributions = Contributions::kModelDtype;
};

// A plan of `row.schedule` that is not searched.
absl::StatusOr<StepPlan> FixedPlan(absl::string_view schedule,
                                   const ModelCosts& costs,
                                   const BubbleOptions& options) {
  const int micro_batches = options.micro_batches;
  const int devices = options.machine.device_count();
  if (micro_batches < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(micro_batches, " micro-batches: expected at least 1"));
  }
  if (schedule == "roundpipe") {
    ASSIGN_OR_RETURN(const Plan stages, RoundpipeStages(costs, options));
    // It knows no groups: a slot adds up one sum.
    return UniformPlan(stages, {1, 1, 1}, micro_batches, 1);
  }
  // As many groups as devices can share a slot.
  return UniformPlan(BlockByBlock(costs.layers), {devices, devices, devices},
                     micro_batches, std::min(devices, micro_batches));
}

absl::StatusOr<StepPlan> SearchedPlan(const ModelCosts& costs,
                                      const BubbleOptions& options,
                                      const StepOptions& step, BubbleRow& row) {
  SearchOptions search;
  search.contributions = step.contributions;
  search.ideas = step.ideas;
  search.fused = step.fused;
  ASSIGN_OR_RETURN(
      const SearchResult result,
      SearchStepPlan(costs, options.machine, options.micro_batches, search));
  row.ranked = result.ranked;
  row.simulated = result.simulated;
  return result.plan;
}

// Slot after slot to device after device, whatever their speeds.
absl::Status RunRing(const ModelCosts& costs, const BubbleOptions& options,
                     const StepOptions& step, const StepPlan& plan,
                     BubbleRow& row) {
  const std::vector<Part> parts = PartsOf(plan, options.micro_batches);
  const int devices = options.machine.device_count();
  std::vector<int> device_of;
  for (size_t i = 0; i < parts.size(); ++i) {
    device_of.push_back(static_cast<int>(i) % devices);
  }
  RETURN_IF_ERROR(CheckDeviceMemory(parts, device_of, costs, options.machine,
                                    plan.look_ahead));
  RingFeed feed(static_cast<int>(parts.size()), devices, 1 + plan.look_ahead);
  row.result = SimulateParts(costs, options.machine, parts,
                             options.micro_batches, step, feed);
  return absl::OkStatus();
}

absl::Status RunStep(const ModelCosts& costs, const BubbleOptions& options,
                     const StepOptions& step, BubbleRow& row) {
  const bool searched = row.schedule.rfind("roundhouse", 0) == 0;
  const absl::Time begin = absl::Now();
  ASSIGN_OR_RETURN(const StepPlan plan,
                   searched ? SearchedPlan(costs, options, step, row)
                            : FixedPlan(row.schedule, costs, options));
  row.plan_time = absl::Now() - begin;
  if (row.schedule == "roundpipe") {
    RETURN_IF_ERROR(RunRing(costs, options, step, plan, row));
  } else {
    const std::vector<Part> parts = PartsOf(plan, options.micro_batches);
    RETURN_IF_ERROR(
        CheckDeviceMemory(parts, AssignDevices(parts, costs, options.machine),
                          costs, options.machine, plan.look_ahead));
    ASSIGN_OR_RETURN(row.result, SimulateStep(costs, options.machine, plan,
                                              options.micro_batches, step));
  }
  return CheckStepSchedule(row.result, costs, Checks(options),
                           step.contributions);
}

absl::Status AddStep(const std::string& schedule, const ModelCosts& costs,
                     const BubbleOptions& options, const StepRules& rules,
                     const Ideas& ideas, BubbleTable& table) {
  StepOptions step;
  step.contributions = rules.contributions;
  step.ideas = ideas;
  step.fused = options.fused;
  BubbleRow row;
  row.schedule = schedule;
  row.rules = rules.name;
  const absl::Status status =
      InRow(RunStep(costs, options, step, row), costs, schedule);
  if (absl::IsResourceExhausted(status)) {
    table.left_out.push_back(
        absl::StrCat(rules.name, ": ", std::string(status.message())));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(status);
  table.rows.push_back(std::move(row));
  return absl::OkStatus();
}

absl::Status AddSteps(const ModelCosts& costs, const BubbleOptions& options,
                      const StepRules& rules, BubbleTable& table) {
  for (const char* schedule : {"roundpipe", "all-wide", "roundhouse"}) {
    if (!Passes(options.schedule, schedule)) continue;
    RETURN_IF_ERROR(AddStep(schedule, costs, options, rules, {}, table));
  }
  if (!Passes(options.schedule, "roundhouse")) return absl::OkStatus();
  for (const std::string& name : options.without) {
    ASSIGN_OR_RETURN(const Ideas ideas, IdeasWithout(name));
    RETURN_IF_ERROR(AddStep(absl::StrCat("roundhouse without ", name), costs,
                            options, rules, ideas, table));
  }
  return absl::OkStatus();
}

std::vector<std::string> Cells(const BubbleRow& row) {
  return {row.model,
          row.schedule,
          row.rules,
          absl::StrFormat("%.4f", row.result.MakespanNs() * 1e-6),
          absl::StrFormat("%.4f", row.reference_ns * 1e-6),
          absl::StrFormat("%.4f", row.result.BubblePercent()),
          absl::StrFormat("%.3f", absl::ToDoubleMilliseconds(row.plan_time))};
}

const std::vector<std::string>& Columns() {
  static const auto* const columns = new std::vector<std::string>{
      "model",        "schedule",       "rules",  "makespan_ms",
      "reference_ms", "bubble_percent", "plan_ms"};
  return *columns;
}

}  // namespace

absl::StatusOr<Ideas> IdeasWithout(absl::string_view name) {
  constexpr std::pair<absl::string_view, bool Ideas::*> kNames[] = {
      {"width", &Ideas::width},
      {"uneven", &Ideas::uneven},
      {"priorities", &Ideas::priorities},
      {"prefetch", &Ideas::prefetch},
      {"per_layer", &Ideas::per_layer}};
  std::vector<absl::string_view> names;
  for (const auto& [known, idea] : kNames) {
    names.push_back(known);
    if (known != name) continue;
    Ideas ideas;
    ideas.*idea = false;
    return ideas;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is none of ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<BubbleTable> BubbleRows(const ModelCosts& costs,
                                       const BubbleOptions& options) {
  BubbleTable table;
  if (Passes(options.rules, "published")) {
    RETURN_IF_ERROR(AddPublished(costs, options, table.rows));
  }
  if (Passes(options.rules, "transfers")) {
    RETURN_IF_ERROR(AddSteps(costs, options,
                             {"transfers", Contributions::kModelDtype}, table));
  }
  if (Passes(options.rules, "transfers4")) {
    RETURN_IF_ERROR(
        AddSteps(costs, options, {"transfers4", Contributions::kFp32}, table));
  }
  for (BubbleRow& row : table.rows) {
    row.model = costs.name;
    row.reference_ns = static_cast<double>(costs.MicroBatchNs()) *
                       options.micro_batches / options.machine.TotalSpeed();
  }
  return table;
}

std::string BubbleCsv(const std::vector<BubbleRow>& rows) {
  std::string text = absl::StrCat(absl::StrJoin(Columns(), ","), "\n");
  for (const BubbleRow& row : rows) {
    absl::StrAppend(&text, absl::StrJoin(Cells(row), ","), "\n");
  }
  return text;
}

std::string BubbleMarkdown(const std::vector<BubbleRow>& rows) {
  std::string text = absl::StrCat("| ", absl::StrJoin(Columns(), " | "),
                                  " |\n|---|---|---|---:|---:|---:|---:|\n");
  for (const BubbleRow& row : rows) {
    absl::StrAppend(&text, "| ", absl::StrJoin(Cells(row), " | "), " |\n");
  }
  return text;
}

}  // namespace roundhouse::bench
