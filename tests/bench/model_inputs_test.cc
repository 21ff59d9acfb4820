#include "tests/bench/model_inputs.h"

#include <string>

#include "gtest/gtest.h"

namespace roundhouse::bench {
namespace {

constexpr char kHeader[] =
    "# a comment\n"
    "model,layers,fwd_ms,bwd_ms,head_fwd_ms,head_bwd_ms,hop_ms,layer_gb,"
    "head_gb,grad_layer_gb,grad_head_gb,tokens,hidden,heads,kv_heads,head_dim,"
    "inner,experts_per_token\n";
constexpr char kOther[] =
    "other,9,2,5,3,6,1.5,0.1,0.6,0.1,0.6,256,64,8,8,4,96,1\n";
constexpr char kRow[] =
    "small,4,2,5,3,6,1.5,0.1,0.6,0.1,0.6,256,64,8,8,4,96,1\n";

absl::StatusOr<ModelCosts> Find(const std::string& rows) {
  return FindModelCosts(kHeader + rows, "in.csv", "small");
}

TEST(ModelInputsTest, FindsItsRow) {
  const auto costs = Find(std::string(kOther) + kRow);
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(costs->name, "small");
  EXPECT_EQ(costs->layers, 4);
}

TEST(ModelInputsTest, NamesWhatIsWrong) {
  EXPECT_EQ(Find(kOther).status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(Find(kOther).status().message()).find("\"small\""),
            std::string::npos);
  EXPECT_EQ(Find("small,4\n").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ModelInputsTest, APlanThereAndBack) {
  const std::string text =
      "{\"forward\": [[0, 1], [2, 2]], \"backward\": [[3, 4], [0, 2]]}";
  const auto plan = ParsePlanJson(text, 4);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->fused);
  EXPECT_EQ(PlanJson(*plan), text);
  Plan wide = *plan;
  wide.split = {{1, 1}, {2}, {2}, {1, 1}};
  EXPECT_EQ(PlanJson(wide),
            "{\"forward\": [[0, 1], [2, 2]], \"backward\": [[3, 4], [0, 2]], "
            "\"forward_width\": [[1, 1], [2]], "
            "\"backward_width\": [[2], [1, 1]]}");
  const auto wide_again = ParsePlanJson(PlanJson(wide), 4);
  ASSERT_TRUE(wide_again.ok()) << wide_again.status();
  EXPECT_EQ(wide_again->split, wide.split);
  // Forward of three layers, forward again and backward of all four, the head.
  EXPECT_DOUBLE_EQ(WorkMs(*Find(kRow), *plan), 3 * 2 + 4 * (2 + 5) + 3 + 6);
}

TEST(ModelInputsTest, RefusesWhatIsNoPlan) {
  for (const char* text :
       {"", "[]", "{}", "{\"forward\": [[0]], \"backward\": [[0, 4]]}",
        "{\"forward\": [], \"backward\": [[0, 3]]}",
        "{\"forward\": [], \"backward\": [[0, \"4\"]]}",
        "{\"forward\": [[0, 1]], \"backward\": []}",
        "{\"forward\": [], \"backward\": [[0, 4]], \"forward_width\": []}",
        "{\"forward\": [], \"backward\": [[0, 4]], \"forward_width\": [], "
        "\"backward_width\": [[0]]}",
        "{\"forward\": [], \"backward\": [[0, 4]], \"forward_width\": [], "
        "\"backward_width\": [2]}"}) {
    EXPECT_EQ(ParsePlanJson(text, 4).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(ModelInputsTest, PlansAsTheDaemonDoes) {
  const auto plan = PublishedPlanOf(*Find(kRow), 2, int64_t{24} << 30);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->fused);
  EXPECT_EQ(CheckPlan(*plan, 5), absl::OkStatus());
  EXPECT_EQ(PublishedPlanOf(*Find(kRow), 2, 1 << 20).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace roundhouse::bench
