#include "server/jobs/job_needs.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

HostNeed Need(const std::string& fields, const ModelConfig& model) {
  const auto spec = ParseJobSpec(
      absl::StrCat("model_name_or_path: m\ndataset: d\n", fields), "job.yaml");
  EXPECT_TRUE(spec.ok()) << spec.status();
  const ResolvedSpec resolved = ResolvedSpec::Resolve(*spec, 2);
  const auto plan = InitialPlan(resolved, model, 2, 1 << 30);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return NeedOf(resolved, model, *plan, 32);
}

// They are completed while nothing is loaded or saved.
TEST(JobNeedsTest, EvalPromptsAndTablesAreNotThereAtOnce) {
  ModelConfig model = TestModel(false);
  const HostNeed without = Need("", model);
  EXPECT_EQ(Need("eval_prompts: [a]", model).table_bytes, without.table_bytes);
  model.max_position_tokens = 1 << 17;
  const uint64_t one = ((1 << 17) + kEvalNewTokens) * sizeof(int32_t) + 64;
  EXPECT_EQ(Need("eval_prompts: [a, b]", model).table_bytes, 2 * one);
  EXPECT_EQ(Need("", model).table_bytes, without.table_bytes);
}

}  // namespace
}  // namespace roundhouse
