#include "tests/bench/bubble_rows.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse::bench {
namespace {

ModelCosts Model() {
  ModelCosts costs;
  costs.name = "m";
  costs.layers = 6;
  costs.forward_ns = 1'000'000;
  costs.backward_ns = 2'000'000;
  costs.head_forward_ns = 1'500'000;
  costs.head_backward_ns = 2'500'000;
  costs.hop_ns = 100'000;
  costs.layer_bytes = costs.layer_gradient_bytes = 1'000'000;
  costs.head_bytes = costs.head_gradient_bytes = 2'000'000;
  costs.tokens = costs.hidden = costs.heads = costs.kv_heads = 4;
  costs.head_dim = costs.inner = costs.experts_per_token = 1;
  return costs;
}

BubbleOptions Options(const std::string& devices) {
  BubbleOptions options;
  options.machine.devices = *ParseDevices(devices);
  options.micro_batches = 4;
  options.rules = "published";
  return options;
}

TEST(BubbleRowsTest, EveryBaselineHasARow) {
  const auto rows = BubbleRows(Model(), Options("2"));
  ASSERT_TRUE(rows.ok()) << rows.status();
  std::vector<std::string> schedules;
  for (const BubbleRow& row : rows->rows) {
    schedules.push_back(row.schedule);
    EXPECT_EQ(row.model, "m");
    // (6 * 4 + 4) ms * 4 micro-batches / 2 devices.
    EXPECT_DOUBLE_EQ(row.reference_ns, 56e6);
  }
  EXPECT_EQ(schedules,
            (std::vector<std::string>{"gpipe", "1f1b", "interleaved-1f1b",
                                      "looped-bfs", "roundpipe", "all-wide"}));
}

TEST(BubbleRowsTest, APublishedPartitionCountsForEightDevices) {
  BubbleOptions options = Options("8");
  options.schedule = "gpipe";
  const auto computed = BubbleRows(Model(), options);
  options.partitions = {{"m", {"gpipe"}, {6, 0, 0, 0, 0, 0, 0, 0}, {}}};
  const auto published = BubbleRows(Model(), options);
  ASSERT_TRUE(published.ok()) << published.status();
  EXPECT_GT(published->rows.front().result.MakespanNs(),
            computed->rows.front().result.MakespanNs());
  options.machine.devices.resize(4);
  const auto four = BubbleRows(Model(), options);
  ASSERT_TRUE(four.ok()) << four.status();
}

TEST(BubbleRowsTest, AnErrorNamesModelAndSchedule) {
  BubbleOptions options = Options("2");
  options.micro_batches = 0;
  EXPECT_EQ(BubbleRows(Model(), options).status().message(),
            "m, gpipe: 0 micro-batches: expected 1 to 4096");
}

TEST(BubbleRowsTest, TransfersCostTime) {
  BubbleOptions options = Options("2");
  options.schedule = "all-wide";
  options.rules = "";
  const auto rows = BubbleRows(Model(), options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->rows.size(), 3u);
  EXPECT_EQ(rows->rows[0].rules, "published");
  EXPECT_EQ(rows->rows[0].result.MakespanNs(), 56e6);
  EXPECT_EQ(rows->rows[1].rules, "transfers");
  EXPECT_GT(rows->rows[1].result.MakespanNs(),
            rows->rows[0].result.MakespanNs());
  EXPECT_EQ(rows->rows[2].rules, "transfers4");
  EXPECT_GT(rows->rows[2].result.MakespanNs(),
            rows->rows[1].result.MakespanNs());
}

TEST(BubbleRowsTest, EachIdeaCanBeDoneWithout) {
  BubbleOptions options = Options("2");
  options.rules = "transfers";
  options.schedule = "roundhouse";
  options.without = {"width", "uneven", "priorities", "prefetch", "per_layer"};
  const auto table = BubbleRows(Model(), options);
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(table->rows.size(), 6u);
  EXPECT_GT(table->rows[0].ranked, table->rows[0].simulated);
  EXPECT_GT(table->rows[0].simulated, 0);
  for (size_t i = 0; i < options.without.size(); ++i) {
    const BubbleRow& row = table->rows[i + 1];
    EXPECT_EQ(row.schedule, "roundhouse without " + options.without[i]);
  }
  // Width is what matters most.
  EXPECT_GT(table->rows[1].result.MakespanNs(),
            table->rows[0].result.MakespanNs());
  options.without = {"luck"};
  EXPECT_EQ(BubbleRows(Model(), options).status().message(),
            "\"luck\" is none of width, uneven, priorities, prefetch, "
            "per_layer");
}

TEST(BubbleRowsTest, PublishedRulesKnowOneSpeed) {
  const auto rows = BubbleRows(Model(), Options("1x24GiB,1x24GiB@0.5"));
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(rows->rows.empty());
}

TEST(BubbleRowsTest, WhatDoesNotFitIsLeftOutAndSaid) {
  BubbleOptions options = Options("2");
  options.rules = "transfers";
  options.machine.devices[1].memory_bytes = 3'000'000;
  const auto table = BubbleRows(Model(), options);
  ASSERT_TRUE(table.ok()) << table.status();
  // The search leaves the small device idle.
  ASSERT_EQ(table->rows.size(), 1u);
  EXPECT_EQ(table->rows[0].schedule, "roundhouse");
  ASSERT_EQ(table->left_out.size(), 2u);
  const std::string start = "transfers: m, all-wide: device 1 needs ";
  EXPECT_EQ(table->left_out[1].substr(0, start.size()), start);
}

TEST(BubbleRowsTest, FormatsHaveTheSameCells) {
  BubbleRow row;
  row.model = "m";
  row.schedule = "s";
  row.rules = "r";
  row.result.device_count = 1;
  Interval interval;
  interval.end_ns = 1'500'000;
  row.result.intervals = {interval};
  row.reference_ns = 1e6;
  row.plan_time = absl::Microseconds(12);
  EXPECT_EQ(BubbleCsv({row}),
            "model,schedule,rules,makespan_ms,reference_ms,bubble_percent,"
            "plan_ms\nm,s,r,1.5000,1.0000,0.0000,0.012\n");
  EXPECT_EQ(BubbleMarkdown({row}),
            "| model | schedule | rules | makespan_ms | reference_ms | "
            "bubble_percent | plan_ms |\n|---|---|---|---:|---:|---:|---:|\n"
            "| m | s | r | 1.5000 | 1.0000 | 0.0000 | 0.012 |\n");
}

}  // namespace
}  // namespace roundhouse::bench
