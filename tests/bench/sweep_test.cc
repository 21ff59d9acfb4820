// Over numbers of devices and micro-batches, on the published models: the plan
// that the search finds is never slower than RoundPipe's, nor than every stage
// on all devices.
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "tests/bench/bubble_rows.h"

namespace roundhouse::bench {
namespace {

class SweepTest : public testing::TestWithParam<std::tuple<int, FusedSlots>> {};

INSTANTIATE_TEST_SUITE_P(
    Models, SweepTest,
    testing::Combine(testing::Range(0, 5),
                     testing::Values(FusedSlots::kWhole,
                                     FusedSlots::kByLayer)));

TEST_P(SweepTest, IsNeverSlowerThanRoundpipeOrAllWide) {
  std::ifstream file("scheduler/testdata/bubble_inputs.csv");
  std::stringstream text;
  text << file.rdbuf();
  const auto models = ParseModelCosts("bubble_inputs.csv", text.str());
  ASSERT_TRUE(models.ok()) << models.status();
  ASSERT_EQ(models->size(), 5u);
  const auto& [model, fused] = GetParam();
  const ModelCosts& costs = (*models)[model];
  BubbleOptions options;
  options.fused = fused;
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
