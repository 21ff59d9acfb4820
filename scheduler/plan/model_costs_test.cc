#include "scheduler/plan/model_costs.h"

#include <string>

#include "gtest/gtest.h"
#include "scheduler/plan/csv.h"

namespace roundhouse {
namespace {

constexpr char kHeader[] =
    "model,layers,fwd_ms,bwd_ms,head_fwd_ms,head_bwd_ms,hop_ms,layer_gb,"
    "head_gb,grad_layer_gb,grad_head_gb,tokens,hidden,heads,kv_heads,head_dim,"
    "inner,experts_per_token\n";
constexpr char kRow[] =
    "m,3,18.50370313,2,3,4,0.5,0.1007,0.6,0.2,0,8192,16,8,4,2,32,1\n";

std::string Message(const std::string& text) {
  return std::string(ParseModelCosts("in.csv", text).status().message());
}

// kRow with its first `from` replaced.
std::string RowWith(const std::string& from, const std::string& to) {
  std::string row = kRow;
  return row.replace(row.find(from), from.size(), to);
}

TEST(ModelCostsTest, ReadsEveryColumn) {
  const auto models = ParseModelCosts(
      "in.csv", std::string("# a comment\n\n") + kHeader + kRow);
  ASSERT_TRUE(models.ok()) << models.status();
  ASSERT_EQ(models->size(), 1u);
  const ModelCosts& costs = models->front();
  EXPECT_EQ(costs.name, "m");
  EXPECT_EQ(costs.layers, 3);
  EXPECT_EQ(costs.head(), 3);
  EXPECT_EQ(costs.forward_ns, 18503703);
  EXPECT_EQ(costs.backward_ns, 2000000);
  EXPECT_EQ(costs.ForwardNs(3), 3000000);
  EXPECT_EQ(costs.RecomputeNs(3), 0);
  EXPECT_EQ(costs.BackwardNs(3), 4000000);
  EXPECT_EQ(costs.BoundaryBytes(), 10500000);
  EXPECT_EQ(costs.WeightBytes(2), 100700000);
  EXPECT_EQ(costs.WeightBytes(3), 600000000);
  EXPECT_EQ(costs.GradientBytes(2), 200000000);
  EXPECT_EQ(costs.GradientBytes(3), 0);
  EXPECT_EQ(costs.tokens, 8192);
  EXPECT_EQ(costs.experts_per_token, 1);
  EXPECT_EQ(costs.MicroBatchNs(), 3 * (2 * 18503703 + 2000000) + 7000000);
}

TEST(ModelCostsTest, ErrorsNameFileAndLine) {
  const std::string header = kHeader;
  EXPECT_EQ(Message(""), "in.csv: no rows");
  EXPECT_EQ(Message(header), "in.csv: no rows");
  EXPECT_EQ(Message("# c\n" + header + "m,3\n"),
            "in.csv:3: 2 cells, but the header has 18");
  EXPECT_EQ(Message("model,model\na,b\n"),
            "in.csv:1: column \"model\" is there a second time");
  EXPECT_EQ(Message("model\nm\n"), "in.csv:2: there is no column \"layers\"");
  EXPECT_EQ(Message(header + RowWith("m,3", ",3")), "in.csv:2: model is empty");
  EXPECT_EQ(Message(header + RowWith("m,3", "m,0")),
            "in.csv:2: layers is \"0\": expected 1 to 511");
  EXPECT_EQ(Message(header + kRow + kRow),
            "in.csv:3: model \"m\" is there a second time");
}

TEST(ModelCostsTest, NumbersAreChecked) {
  const std::string header = kHeader;
  for (const char* bad : {"x", "-1", "nan", "inf", "1e300", ""}) {
    const std::string message = Message(header + RowWith("18.50370313", bad));
    EXPECT_EQ(message.rfind("in.csv:2: fwd_ms is \"" + std::string(bad), 0), 0u)
        << message;
  }
  EXPECT_EQ(Message(header + RowWith("8192", "81.5")),
            "in.csv:2: tokens is \"81.5\": expected a whole number");
}

TEST(ModelCostsTest, ManyRowsAreRefused) {
  const auto rows = ParseCsv("in.csv", "a\n1\n2\n3\n", 2);
  EXPECT_EQ(rows.status().message(), "in.csv:4: more than 2 rows");
}

}  // namespace
}  // namespace roundhouse
