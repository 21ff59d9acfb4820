// The five baselines reproduce every row of testdata/published_bubbles.csv,
// which is the log of RoundPipe's published simulator.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "scheduler/plan/csv.h"
#include "scheduler/simulate/checker.h"
#include "tests/published/baselines.h"
#include "tests/published/partitions.h"

namespace roundhouse {
namespace {

constexpr int kDevices = 8;
constexpr int kMicroBatches = 16;

std::string Read(const std::string& name) {
  std::ifstream file("scheduler/testdata/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Published {
  std::string model;
  std::string schedule;
  double makespan_ms = 0;
  double bubble_percent = 0;
};

std::vector<Published> ReadPublished() {
  const std::string name = "published_bubbles.csv";
  const auto rows = ParseCsv(name, Read(name), 100);
  EXPECT_TRUE(rows.ok()) << rows.status();
  std::vector<Published> published;
  for (const CsvRow& row : *rows) {
    Published entry{*row.Cell("model"), *row.Cell("schedule")};
    EXPECT_TRUE(absl::SimpleAtod(*row.Cell("makespan_ms"), &entry.makespan_ms));
    EXPECT_TRUE(
        absl::SimpleAtod(*row.Cell("bubble_percent"), &entry.bubble_percent));
    published.push_back(entry);
  }
  return published;
}

absl::StatusOr<Schedule> Simulate(const ModelCosts& costs, Baseline baseline,
                                  const PublishedPartition& partition) {
  if (baseline == Baseline::kRoundpipe) {
    return SimulateRoundpipe(costs, *RoundpipePlan(partition, costs), kDevices,
                             kMicroBatches);
  }
  return SimulatePlacedBaseline(baseline, costs,
                                *PlacedStages(partition, costs), kDevices,
                                kMicroBatches);
}

void ExpectPublished(const Published& row, const ModelCosts& costs,
                     const Schedule& schedule) {
  EXPECT_NEAR(static_cast<double>(schedule.MakespanNs()) * 1e-6,
              row.makespan_ms, 1e-3);
  EXPECT_NEAR(schedule.BubblePercent(), row.bubble_percent, 1e-4);
  CheckOptions options;
  options.machine.devices.resize(kDevices);
  options.micro_batches = kMicroBatches;
  options.head_forward_waits = row.schedule != "roundpipe";
  EXPECT_EQ(CheckPublishedSchedule(schedule, costs, options), absl::OkStatus());
}

TEST(PublishedBubblesTest, EveryRowIsReproduced) {
  const auto models =
      *ParseModelCosts("bubble_inputs.csv", Read("bubble_inputs.csv"));
  const auto partitions = *ParsePartitions("published_partitions.csv",
                                           Read("published_partitions.csv"));
  const auto published = ReadPublished();
  ASSERT_EQ(published.size(), 25u);
  size_t next = 0;
  for (const ModelCosts& costs : models) {
    for (const Baseline baseline : kBaselines) {
      const Published& row = published[next++];
      SCOPED_TRACE(row.model + ", " + row.schedule);
      ASSERT_EQ(row.model, costs.name);
      ASSERT_EQ(row.schedule, BaselineName(baseline));
      const auto* partition = FindPartition(partitions, costs.name, baseline);
      ASSERT_NE(partition, nullptr);
      const auto schedule = Simulate(costs, baseline, *partition);
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      ExpectPublished(row, costs, *schedule);
    }
  }
}

// The published head runs forward while it waits for its input.
TEST(PublishedBubblesTest, TheUngatedHeadIsSeen) {
  const auto models =
      *ParseModelCosts("bubble_inputs.csv", Read("bubble_inputs.csv"));
  const auto partitions = *ParsePartitions("published_partitions.csv",
                                           Read("published_partitions.csv"));
  CheckOptions options;
  options.machine.devices.resize(kDevices);
  options.micro_batches = kMicroBatches;
  for (const ModelCosts& costs : models) {
    const auto* partition =
        FindPartition(partitions, costs.name, Baseline::kRoundpipe);
    const auto schedule = Simulate(costs, Baseline::kRoundpipe, *partition);
    const auto status = CheckPublishedSchedule(*schedule, costs, options);
    EXPECT_NE(status.message().find("head_forward"), status.message().npos)
        << costs.name << ": " << status;
  }
}

}  // namespace
}  // namespace roundhouse
