// The rows of bubble_table --steps: consecutive steps with the optimizer, each
// against the bound of scheduler/search/step_bound.h.  No files, no flags.
#ifndef ROUNDHOUSE_TESTS_BENCH_STEPS_ROWS_H_
#define ROUNDHOUSE_TESTS_BENCH_STEPS_ROWS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/search/step_bound.h"
#include "scheduler/simulate/schedule.h"

namespace roundhouse::bench {

struct StepsTableOptions {
  Machine machine;
  int micro_batches = 16;  // of a round
  FusedSlots fused = FusedSlots::kWhole;
  int steps = 10;
  std::vector<int> rounds = {1};  // of a step; a block of rows for each
  std::string mode;               // filter: "clipped"; empty: all
  // Rows of one pass instead.  REQUIRES: rounds {1}.
  bool one_pass = false;
  // Rows keep their intervals, up to millions each.
  bool keep_intervals = false;
};

struct StepsRow {
  std::string model;
  // synchronous, clipped, asynchronous; one-pass, one-pass-asynchronous
  std::string mode;
  int rounds = 1;
  // First upload to last update, over the steps.
  double step_ns = 0;
  StepBound bound;          // of one step
  double unclipped_ns = 0;  // the bound of the same without clipping
  double bubble_percent = 0;
  absl::Duration plan_time;  // wall time
  int ranked = 0;            // plans estimated
  int simulated = 0;         // plans simulated
  std::string plan;
  Schedule result;
};

// Rows for one model and each number of rounds: synchronous without clipping,
// with clipping, and asynchronous. In one pass they are synchronous and
// asynchronous, against bounds of their own. The plan is the one that the
// search finds for the row. Each row was checked. Errors have model and mode in
// front.
absl::StatusOr<std::vector<StepsRow>> StepsRows(
    const ModelCosts& costs, const StepsTableOptions& options);

// model,mode,rounds,step_ms,bound_ms,bound,percent_of_bound,bubble_percent,
// speculative_bound_ms,plan_ms
std::string StepsCsv(const std::vector<StepsRow>& rows);
// The same columns as Markdown.
std::string StepsMarkdown(const std::vector<StepsRow>& rows);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_STEPS_ROWS_H_
