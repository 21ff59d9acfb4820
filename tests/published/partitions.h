// The stages that the baselines run: the published ones, and stages of about
// equal time where none are published.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_TESTS_PUBLISHED_PARTITIONS_H_
#define ROUNDHOUSE_TESTS_PUBLISHED_PARTITIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/plan.h"
#include "tests/published/baselines.h"

namespace roundhouse {

// A row of scheduler/testdata/published_partitions.csv.  Counts are decoder
// blocks per stage in the order in which the stages run; the head belongs to
// the last forward stage, or to the first backward one where there are any.
struct PublishedPartition {
  std::string model;
  std::vector<std::string> schedules;
  std::vector<int> forward;
  std::vector<int> backward;  // roundpipe only
};

// The published partitions are for this many devices.
inline constexpr int kPublishedDevices = 8;
inline constexpr int kMaxPartitionRows = 1000;

// Columns model, schedule ("gpipe+1f1b"), partition ("3x8 2 | 0 1x24").
// INVALID_ARGUMENT naming file and line.
absl::StatusOr<std::vector<PublishedPartition>> ParsePartitions(
    absl::string_view file, absl::string_view text);

// The row of a model and schedule; null where there is none.
const PublishedPartition* FindPartition(
    const std::vector<PublishedPartition>& partitions, absl::string_view model,
    Baseline baseline);

// INVALID_ARGUMENT when the counts do not add up to the model's blocks, or
// `backward` is (not) empty.
absl::StatusOr<Stages> PlacedStages(const PublishedPartition& partition,
                                    const ModelCosts& costs);
absl::StatusOr<Plan> RoundpipePlan(const PublishedPartition& partition,
                                   const ModelCosts& costs);

// Stages for a model and number of devices that nothing is published for: one
// a device for gpipe and 1f1b, else as many a device as (blocks + 2) allow,
// the longest stage as short as can be.
// REQUIRES: device_count >= 1, not roundpipe.
Stages BalancedStages(Baseline baseline, const ModelCosts& costs,
                      int device_count);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_TESTS_PUBLISHED_PARTITIONS_H_
