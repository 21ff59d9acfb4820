#include "tests/bench/steps_rows.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse::bench {
namespace {

ModelCosts Model() {
  ModelCosts costs;
  costs.name = "m";
  costs.layers = 4;
  costs.forward_ns = 1'000'000;
  costs.backward_ns = 2'000'000;
  costs.head_forward_ns = 1'500'000;
  costs.head_backward_ns = 2'500'000;
  costs.hop_ns = 10'000;
  costs.layer_bytes = costs.layer_gradient_bytes = 1'000'000;
  costs.head_bytes = costs.head_gradient_bytes = 2'000'000;
  costs.tokens = costs.hidden = costs.heads = costs.kv_heads = 4;
  costs.head_dim = costs.inner = costs.experts_per_token = 1;
  return costs;
}

StepsTableOptions Options() {
  StepsTableOptions options;
  options.machine.devices.resize(2);
  options.micro_batches = 4;
  options.steps = 3;
  options.rounds = {1, 2};
  return options;
}

TEST(StepsRowsTest, EveryModeHasARowPerNumberOfRounds) {
  const auto rows = StepsRows(Model(), Options());
  ASSERT_TRUE(rows.ok()) << rows.status();
  std::vector<std::string> names;
  for (const StepsRow& row : *rows) {
    names.push_back(row.mode + " " + std::to_string(row.rounds));
    EXPECT_GT(row.ranked, row.simulated);
    EXPECT_GT(row.simulated, 0);
    EXPECT_GT(row.step_ns, 0.8 * row.bound.ns);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"synchronous 1", "clipped 1",
                                             "asynchronous 1", "synchronous 2",
                                             "clipped 2", "asynchronous 2"}));
  EXPECT_EQ(rows->at(0).bound.name, "layer 0");
  EXPECT_GE(rows->at(1).bound.ns, rows->at(0).bound.ns);
  EXPECT_EQ(rows->at(1).unclipped_ns, rows->at(0).bound.ns);
  EXPECT_EQ(rows->at(2).bound.name, "compute");
}

TEST(StepsRowsTest, OnePassHasRowsOfItsOwn) {
  StepsTableOptions options = Options();
  options.one_pass = true;
  // Its sums are kept between rounds.
  EXPECT_FALSE(StepsRows(Model(), options).ok());
  options.rounds = {1};
  const auto rows = StepsRows(Model(), options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ(rows->at(0).mode, "one-pass");
  EXPECT_EQ(rows->at(1).mode, "one-pass-asynchronous");
  EXPECT_EQ(rows->at(0).bound.name, "layer 0");
  EXPECT_EQ(rows->at(1).bound.name, "compute");
  options.one_pass = false;
  EXPECT_GT(StepsRows(Model(), options)->at(0).bound.ns, rows->at(0).bound.ns);
}

TEST(StepsRowsTest, AModeCanBeChosen) {
  StepsTableOptions options = Options();
  options.mode = "clipped";
  const auto rows = StepsRows(Model(), options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ(rows->front().mode, "clipped");
}

TEST(StepsRowsTest, AnErrorNamesModelModeAndRounds) {
  StepsTableOptions options = Options();
  options.steps = 0;
  EXPECT_EQ(StepsRows(Model(), options).status().message(),
            "m, synchronous with 1 rounds: 0 steps of 1 rounds: expected at "
            "least one each and at most 1000 rounds in all");
}

TEST(StepsRowsTest, FormatsHaveTheSameCells) {
  StepsRow row;
  row.model = "m";
  row.mode = "clipped";
  row.rounds = 4;
  row.step_ns = 2e6;
  row.bound = {1.5e6, "updates"};
  row.unclipped_ns = 1e6;
  row.bubble_percent = 2.5;
  row.plan_time = absl::Microseconds(12);
  const std::string csv = StepsCsv({row});
  EXPECT_EQ(csv.substr(csv.find('\n') + 1),
            "m,clipped,4,2.0000,1.5000,updates,75.00,2.5000,1.0000,0.012\n");
  const std::string table = StepsMarkdown({row});
  EXPECT_EQ(table.substr(table.find("| m |")),
            "| m | clipped | 4 | 2.0000 | 1.5000 | updates | 75.00 | 2.5000 | "
            "1.0000 | 0.012 |\n");
}

}  // namespace
}  // namespace roundhouse::bench
