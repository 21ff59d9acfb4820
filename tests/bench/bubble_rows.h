// The rows of bubble_table: every schedule of a model on a machine, under
// several rules.  No files, no flags.
#ifndef ROUNDHOUSE_TESTS_BENCH_BUBBLE_ROWS_H_
#define ROUNDHOUSE_TESTS_BENCH_BUBBLE_ROWS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/simulate/schedule.h"
#include "scheduler/simulate/step_simulator.h"
#include "tests/published/partitions.h"

namespace roundhouse::bench {

// What to simulate.  An empty filter takes everything.
struct BubbleOptions {
  Machine machine;
  int micro_batches = 16;
  FusedSlots fused = FusedSlots::kWhole;  // under transfers
  std::vector<PublishedPartition> partitions;
  std::string schedule;  // filter: "roundpipe"
  std::string rules;     // filter: "published"
  // Roundhouse once more without each of these: "width", "uneven",
  // "priorities", "prefetch", "per_layer".
  std::vector<std::string> without;
};

struct BubbleRow {
  std::string model;
  std::string schedule;
  std::string rules;
  Schedule result;
  // All layers forward, recompute and backward and the head once, times
  // micro-batches, over the devices' speeds together.
  double reference_ns = 0;
  absl::Duration plan_time;  // of choosing the stages, wall time
  int ranked = 0;            // plans estimated
  int simulated = 0;         // plans simulated
};

struct BubbleTable {
  std::vector<BubbleRow> rows;
  // A line for each schedule that has no row because it does not fit into the
  // devices' memory.
  std::vector<std::string> left_out;
};

// Everything but the idea of that name.  INVALID_ARGUMENT where there is none.
absl::StatusOr<Ideas> IdeasWithout(absl::string_view name);

// The rows of one model that pass the filters, in the order of the table.  Each
// was checked (scheduler/simulate/checker.h).  Errors of the simulators, with
// model and schedule in front.
absl::StatusOr<BubbleTable> BubbleRows(const ModelCosts& costs,
                                       const BubbleOptions& options);

// model,schedule,rules,makespan_ms,reference_ms,bubble_percent,plan_ms
std::string BubbleCsv(const std::vector<BubbleRow>& rows);
// The same columns as Markdown.
std::string BubbleMarkdown(const std::vector<BubbleRow>& rows);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_BUBBLE_ROWS_H_
