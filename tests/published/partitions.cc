#include "tests/published/partitions.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/status.h"
#include "scheduler/plan/csv.h"

namespace roundhouse {
namespace {

bool ParseCount(absl::string_view text, int most, int* count) {
  return absl::SimpleAtoi(text, count) && *count >= 0 && *count <= most;
}

// "3 4x2" is 3 4 4.
absl::StatusOr<std::vector<int>> ParseCounts(const CsvRow& row,
                                             absl::string_view text) {
  std::vector<int> counts;
  for (const absl::string_view word :
       absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const std::vector<absl::string_view> parts = absl::StrSplit(word, 'x');
    int count = 0, times = 1;
    if (parts.size() > 2 || !ParseCount(parts[0], kMaxPlanLayers, &count) ||
        (parts.size() == 2 && !ParseCount(parts[1], kMaxPlanLayers, &times))) {
      return row.Error(absl::StrCat("partition has \"", word,
                                    "\": expected layers or layers x times"));
    }
    counts.insert(counts.end(), times, count);
    if (counts.size() > 2 * kMaxPlanLayers) {
      return row.Error("partition has too many stages");
    }
  }
  if (counts.empty()) return row.Error("partition has a side without stages");
  return counts;
}

absl::StatusOr<PublishedPartition> ReadPartition(const CsvRow& row) {
  PublishedPartition partition;
  ASSIGN_OR_RETURN(partition.model, row.Cell("model"));
  ASSIGN_OR_RETURN(const std::string schedules, row.Cell("schedule"));
  partition.schedules = absl::StrSplit(schedules, '+');
  ASSIGN_OR_RETURN(const std::string text, row.Cell("partition"));
  const std::vector<absl::string_view> sides = absl::StrSplit(text, '|');
  if (sides.size() > 2) return row.Error("partition has more than one \"|\"");
  ASSIGN_OR_RETURN(partition.forward, ParseCounts(row, sides[0]));
  if (sides.size() == 2) {
    ASSIGN_OR_RETURN(partition.backward, ParseCounts(row, sides[1]));
  }
  return partition;
}

absl::Status CheckSum(const PublishedPartition& partition,
                      const std::vector<int>& counts, int layers) {
  const int sum = std::accumulate(counts.begin(), counts.end(), 0);
  if (sum == layers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("partition of ", partition.model, " has ", sum,
                   " layers, the model ", layers));
}

Stages AscendingStages(const std::vector<int>& counts) {
  Stages stages;
  int next = 0;
  for (const int count : counts) {
    stages.push_back({next, next + count - 1});
    next += count;
  }
  return stages;
}

}  // namespace

absl::StatusOr<std::vector<PublishedPartition>> ParsePartitions(
    absl::string_view file, absl::string_view text) {
  ASSIGN_OR_RETURN(const std::vector<CsvRow> rows,
                   ParseCsv(file, text, kMaxPartitionRows));
  std::vector<PublishedPartition> partitions;
  for (const CsvRow& row : rows) {
    ASSIGN_OR_RETURN(partitions.emplace_back(), ReadPartition(row));
  }
  return partitions;
}

const PublishedPartition* FindPartition(
    const std::vector<PublishedPartition>& partitions, absl::string_view model,
    Baseline baseline) {
  for (const PublishedPartition& partition : partitions) {
    if (partition.model != model) continue;
    for (const std::string& schedule : partition.schedules) {
      if (schedule == BaselineName(baseline)) return &partition;
    }
  }
  return nullptr;
}

absl::StatusOr<Stages> PlacedStages(const PublishedPartition& partition,
                                    const ModelCosts& costs) {
  RETURN_IF_ERROR(CheckSum(partition, partition.forward, costs.layers));
  if (!partition.backward.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("partition of ", partition.model, " has backward stages"));
  }
  Stages stages = AscendingStages(partition.forward);
  stages.back().last = costs.head();
  return stages;
}

absl::StatusOr<Plan> RoundpipePlan(const PublishedPartition& partition,
                                   const ModelCosts& costs) {
  if (partition.backward.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "partition of ", partition.model, " has no backward stages"));
  }
  RETURN_IF_ERROR(CheckSum(partition, partition.backward, costs.layers));
  RETURN_IF_ERROR(CheckSum(partition, partition.forward,
                           costs.layers - partition.backward[0]));
  Plan plan;
  plan.fused = true;
  plan.forward = AscendingStages(partition.forward);
  int end = costs.head();
  for (const int count : partition.backward) {
    plan.backward.push_back({end - count, end - 1});
    end -= count;
  }
  plan.backward[0].last = costs.head();
  RETURN_IF_ERROR(CheckPlan(plan, costs.layers + 1));
  return plan;
}

Stages BalancedStages(Baseline baseline, const ModelCosts& costs,
                      int device_count) {
  ROUNDHOUSE_CHECK(device_count >= 1 && baseline != Baseline::kRoundpipe);
  const bool one_each =
      baseline == Baseline::kGpipe || baseline == Baseline::k1f1b;
  // Embedding and head count as layers here, as they do where a partition is
  // published.
  const int per_device =
      one_each ? 1 : std::max(1, (costs.layers + 2) / device_count);
  const int others = device_count * per_device - 1;
  const int64_t block_ns = 2 * costs.forward_ns + costs.backward_ns;
  const int64_t head_ns = costs.head_forward_ns + costs.head_backward_ns;
  int best_last = costs.layers;
  int64_t best_ns = costs.layers * block_ns + head_ns;
  for (int last = costs.layers; last >= 0 && others > 0; --last) {
    const int longest = (costs.layers - last + others - 1) / others;
    const int64_t ns = std::max(longest * block_ns, last * block_ns + head_ns);
    if (ns <= best_ns) {
      best_ns = ns;
      best_last = last;
    }
  }
  std::vector<int> counts;
  for (int i = 0, left = costs.layers - best_last; i < others; ++i) {
    const int stages_left = others - i;
    counts.push_back((left + stages_left - 1) / stages_left);
    left -= counts.back();
  }
  counts.push_back(best_last);
  Stages stages = AscendingStages(counts);
  stages.back().last = costs.head();
  return stages;
}

}  // namespace roundhouse
