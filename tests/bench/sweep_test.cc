// Over numbers of devices and micro-batches, on the published models: the plan
// that the search finds is never slower than RoundPipe's, nor than every stage
// on all devices.
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/bench/bubble_rows.h"

namespace roundhouse::bench {
namespace {

class SweepTest : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Models, SweepTest, testing::Range(0, 5));

TEST_P(SweepTest, IsNeverSlowerThanRoundpipeOrAllWide) {
  std::ifstream file("scheduler/testdata/bubble_inputs.csv");
  std::stringstream text;
  text << file.rdbuf();
  const auto models = ParseModelCosts("bubble_inputs.csv", text.str());
  ASSERT_TRUE(models.ok()) << models.status();
  ASSERT_EQ(models->size(), 5u);
  const ModelCosts& costs = (*models)[GetParam()];
  BubbleOptions options;
  options.rules = "transfers";
  for (int devices = 1; devices <= 8; ++devices) {
    options.machine.devices.resize(devices);
    for (const int micro_batches : {8, 12, 16, 24, 32, 64}) {
      SCOPED_TRACE(testing::Message() << costs.name << " on " << devices
                                      << " with " << micro_batches);
      options.micro_batches = micro_batches;
      const auto table = BubbleRows(costs, options);
      ASSERT_TRUE(table.ok()) << table.status();
      std::map<std::string, int64_t> ns;
      for (const BubbleRow& row : table->rows) {
        ns[row.schedule] = row.result.MakespanNs();
      }
      ASSERT_EQ(ns.size(), 3u);
      EXPECT_LE(ns.at("roundhouse"), ns.at("roundpipe"));
      EXPECT_LE(ns.at("roundhouse"), ns.at("all-wide"));
    }
  }
}

}  // namespace
}  // namespace roundhouse::bench
