#include "tests/bench/steps_rows.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "scheduler/search/step_search.h"
#include "scheduler/simulate/checker.h"
#include "scheduler/simulate/step_simulator.h"

namespace roundhouse::bench {
namespace {

struct Mode {
  absl::string_view name;
  Updates updates;
};

constexpr Mode kModes[] = {{"synchronous", Updates::kAsReduced},
                           {"clipped", Updates::kClipped},
                           {"asynchronous", Updates::kStale},
                           {"one-pass", Updates::kOnePass},
                           {"one-pass-asynchronous", Updates::kOnePassStale}};

absl::StatusOr<StepsRow> Row(const ModelCosts& costs, const Mode& mode,
                             int rounds, const StepsTableOptions& options) {
  StepsRow row;
  row.model = costs.name;
  row.mode = std::string(mode.name);
  row.rounds = rounds;
  SearchOptions search;
  search.updates = mode.updates;
  search.rounds = rounds;
  search.fused = options.fused;
  const absl::Time begin = absl::Now();
  ASSIGN_OR_RETURN(
      const SearchResult found,
      SearchStepPlan(costs, options.machine, options.micro_batches, search));
  row.plan_time = absl::Now() - begin;
  row.ranked = found.ranked;
  row.simulated = found.simulated;
  row.plan = ToString(found.plan);
  StepsOptions steps;
  steps.steps = options.steps;
  steps.rounds = rounds;
  steps.updates = mode.updates;
  steps.step.fused = options.fused;
  ASSIGN_OR_RETURN(row.result, SimulateSteps(costs, options.machine, found.plan,
                                             options.micro_batches, steps));
  RETURN_IF_ERROR(
      CheckStepsSchedule(row.result, costs,
                         {options.machine, options.micro_batches, options.steps,
                          rounds, mode.updates, steps.step.contributions}));
  BoundOptions bound{options.micro_batches, rounds, mode.updates,
                     steps.step.contributions};
  row.bound = BoundOf(costs, options.machine, bound);
  bound.updates = Updates::kAsReduced;
  row.unclipped_ns = BoundOf(costs, options.machine, bound).ns;
  row.step_ns = static_cast<double>(row.result.MakespanNs()) / options.steps;
  row.bubble_percent = row.result.BubblePercent();
  if (!options.keep_intervals) row.result = {};
  return row;
}

std::vector<std::string> Cells(const StepsRow& row) {
  return {row.model,
          row.mode,
          absl::StrCat(row.rounds),
          absl::StrFormat("%.4f", row.step_ns * 1e-6),
          absl::StrFormat("%.4f", row.bound.ns * 1e-6),
          std::string(row.bound.name),
          absl::StrFormat("%.2f", 100 * row.bound.ns / row.step_ns),
          absl::StrFormat("%.4f", row.bubble_percent),
          row.mode == "clipped"
              ? absl::StrFormat("%.4f", row.unclipped_ns * 1e-6)
              : "",
          absl::StrFormat("%.3f", absl::ToDoubleMilliseconds(row.plan_time))};
}

const std::vector<std::string>& Columns() {
  static const auto* const columns =
      new std::vector<std::string>{"model",
                                   "mode",
                                   "rounds",
                                   "step_ms",
                                   "bound_ms",
                                   "bound",
                                   "percent_of_bound",
                                   "bubble_percent",
                                   "speculative_bound_ms",
                                   "plan_ms"};
  return *columns;
}

}  // namespace

absl::StatusOr<std::vector<StepsRow>> StepsRows(
    const ModelCosts& costs, const StepsTableOptions& options) {
  std::vector<StepsRow> rows;
  for (const int rounds : options.rounds) {
    for (const Mode& mode : kModes) {
      if (IsOnePass(mode.updates) != options.one_pass) continue;
      if (!options.mode.empty() && options.mode != mode.name) continue;
      auto row = Row(costs, mode, rounds, options);
      if (!row.ok()) {
        return absl::Status(
            row.status().code(),
            absl::StrCat(costs.name, ", ", std::string(mode.name), " with ",
                         rounds, " rounds: ", row.status().message()));
      }
      rows.push_back(*std::move(row));
    }
  }
  return rows;
}

std::string StepsCsv(const std::vector<StepsRow>& rows) {
  std::string text = absl::StrCat(absl::StrJoin(Columns(), ","), "\n");
  for (const StepsRow& row : rows) {
    absl::StrAppend(&text, absl::StrJoin(Cells(row), ","), "\n");
  }
  return text;
}

std::string StepsMarkdown(const std::vector<StepsRow>& rows) {
  std::string text =
      absl::StrCat("| ", absl::StrJoin(Columns(), " | "),
                   " |\n|---|---|---:|---:|---:|---|---:|---:|---:|---:|\n");
  for (const StepsRow& row : rows) {
    absl::StrAppend(&text, "| ", absl::StrJoin(Cells(row), " | "), " |\n");
  }
  return text;
}

}  // namespace roundhouse::bench
