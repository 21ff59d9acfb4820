#include "tests/published/partitions.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"

namespace roundhouse {
namespace {

constexpr char kHeader[] = "model,schedule,partition\n";

std::string Message(const std::string& rows) {
  return std::string(
      ParsePartitions("p.csv", kHeader + rows).status().message());
}

PublishedPartition Parsed(const std::string& partition) {
  const auto parsed =
      ParsePartitions("p.csv", kHeader + ("m,gpipe+1f1b," + partition));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed->front();
}

std::vector<int> Counts(const Stages& stages) {
  std::vector<int> counts;
  for (const LayerRange& stage : stages) counts.push_back(stage.layer_count());
  return counts;
}

TEST(PartitionsTest, RepeatsAndSidesAreRead) {
  const PublishedPartition partition = Parsed("7x2 3 | 0 1x4");
  EXPECT_EQ(partition.forward, (std::vector<int>{7, 7, 3}));
  EXPECT_EQ(partition.backward, (std::vector<int>{0, 1, 1, 1, 1}));
  EXPECT_EQ(partition.schedules, (std::vector<std::string>{"gpipe", "1f1b"}));
}

TEST(PartitionsTest, ErrorsNameFileAndLine) {
  EXPECT_EQ(Message("m,gpipe,1 | 2 | 3\n"),
            "p.csv:2: partition has more than one \"|\"");
  EXPECT_EQ(Message("m,gpipe,1 |\n"),
            "p.csv:2: partition has a side without stages");
  for (const char* bad : {"x", "-1", "1x", "x2", "1x2x3", "600"}) {
    EXPECT_EQ(Message("m,gpipe,1 " + std::string(bad) + "\n"),
              "p.csv:2: partition has \"" + std::string(bad) +
                  "\": expected layers or layers x times");
  }
  EXPECT_EQ(Message("m,gpipe,1x512 1x512 1\n"),
            "p.csv:2: partition has too many stages");
}

TEST(PartitionsTest, RowsAreFoundByModelAndSchedule) {
  const auto rows = *ParsePartitions(
      "p.csv", std::string(kHeader) + "a,gpipe+1f1b,1\nb,roundpipe,1 | 1\n");
  EXPECT_EQ(FindPartition(rows, "a", Baseline::k1f1b), &rows[0]);
  EXPECT_EQ(FindPartition(rows, "b", Baseline::kRoundpipe), &rows[1]);
  EXPECT_EQ(FindPartition(rows, "a", Baseline::kRoundpipe), nullptr);
}

TEST(PartitionsTest, TheHeadJoinsTheLastStage) {
  EXPECT_EQ(*PlacedStages(Parsed("0 2x2 0"), SmallModel(4)),
            (Stages{{0, -1}, {0, 1}, {2, 3}, {4, 4}}));
  const Plan plan = *RoundpipePlan(Parsed("2 1 | 1 1 2"), SmallModel(4));
  EXPECT_EQ(ToString(plan),
            "forward [0,1] [2,2] backward fused [3,4] [2,2] [0,1]");
}

TEST(PartitionsTest, WrongSumsAreRefused) {
  EXPECT_EQ(PlacedStages(Parsed("2 3"), SmallModel(4)).status().message(),
            "partition of m has 5 layers, the model 4");
  EXPECT_FALSE(PlacedStages(Parsed("4 | 0 4"), SmallModel(4)).ok());
  EXPECT_FALSE(RoundpipePlan(Parsed("4"), SmallModel(4)).ok());
  EXPECT_FALSE(RoundpipePlan(Parsed("4 | 1 3"), SmallModel(4)).ok());
  EXPECT_FALSE(RoundpipePlan(Parsed("4 | 0 3"), SmallModel(4)).ok());
}

TEST(PartitionsTest, BalancedStagesMakeRoomForTheHead) {
  // The head takes as long as 1.75 blocks of this model: the last stage has
  // two blocks and the head.
  const ModelCosts costs = SmallModel(11);
  EXPECT_EQ(Counts(BalancedStages(Baseline::kGpipe, costs, 4)),
            (std::vector<int>{3, 3, 3, 3}));
  EXPECT_EQ(BalancedStages(Baseline::kLoopedBfs, costs, 4).size(), 12u);
  EXPECT_EQ(Counts(BalancedStages(Baseline::k1f1b, costs, 1)),
            (std::vector<int>{12}));
  EXPECT_EQ(BalancedStages(Baseline::kInterleaved1f1b, SmallModel(2), 8).size(),
            8u);
}

}  // namespace
}  // namespace roundhouse
