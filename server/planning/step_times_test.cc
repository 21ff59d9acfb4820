#include "server/planning/step_times.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/spec/spec.h"

namespace roundhouse {
namespace {

std::string Resolved(const std::string& fields) {
  const auto spec = ParseJobSpec(
      absl::StrCat("model_name_or_path: m\ndataset: d\n", fields), "job");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return ResolvedSpec::Resolve(*spec, 2).ToJson();
}

TEST(SameStepWorkTest, OnlyWhatChangesAStepCounts) {
  const std::string one = Resolved("max_steps: 4\n");
  EXPECT_TRUE(SameStepWork(one, one));
  for (const char* same :
       {"max_steps: 9\nseed: 3\nlearning_rate: 0.5\n",
        "num_train_epochs: 2\nsave_steps: 1\nsave_total_limit: 3\n",
        "model_init: random\n",
        "validation_dataset: v\neval_steps: 2\nmetadata: {a: b}\n"}) {
    EXPECT_TRUE(SameStepWork(one, Resolved(same))) << same;
  }
  for (const char* other :
       {"batch_size: 3\n", "method: lora\n", "dtype: bf16\n", "max_length: 9\n",
        "packing: true\n", "micro_batch_size: 3\n", "max_grad_norm: 0\n"}) {
    EXPECT_FALSE(SameStepWork(one, Resolved(other))) << other;
  }
  EXPECT_FALSE(SameStepWork("", ""));
  EXPECT_FALSE(SameStepWork(one, "[]"));
}

TEST(SameStepWorkTest, EveryFieldThatIsPassedOverExists) {
  // A change of each of them alone, so that a name with a typo shows.
  const std::string one = Resolved("max_steps: 4\nmethod: lora\n");
  for (const char* field :
       {"num_train_epochs: 7", "lr_scheduler_type: cosine", "warmup_ratio: 0.5",
        "warmup_steps: 3", "weight_decay: 0.25", "adam_beta1: 0.25",
        "adam_beta2: 0.25", "adam_epsilon: 0.25", "logging_steps: 7",
        "save_steps: 7", "save_total_limit: 7", "output_name: other",
        "template_date: 2026-01-02", "validation_dataset: v", "lora_alpha: 7",
        "validation_dataset: v\neval_steps: 7\nearly_stopping_patience: 2\n"
        "load_best_model_at_end: true"}) {
    const std::string fields =
        absl::StrCat("method: lora\n", field,
                     std::string(field).find("epochs") == std::string::npos
                         ? "\nmax_steps: 4\n"
                         : "\n");
    EXPECT_TRUE(SameStepWork(one, Resolved(fields))) << field;
  }
}

class StepSecondsTest : public testing::Test {
 protected:
  StepSecondsTest() : path_(testing::TempDir() + "/step_times.jsonl") {
    std::filesystem::remove(path_);
  }
  void Write(const std::string& text) {
    std::ofstream(path_, std::ios::binary | std::ios::app) << text;
  }
  const std::string path_;
};

TEST_F(StepSecondsTest, TheMeanOfTheSteps) {
  EXPECT_EQ(MeasuredStepSeconds(path_), std::nullopt);
  Write("{\"step\":0,\"eval_loss\":3}\n{\"step\":1,\"step_seconds\":1}\n");
  Write("[]\nnull\n{\"step_seconds\":\"9\"}\n{\"step_seconds\":2}\n");
  EXPECT_EQ(MeasuredStepSeconds(path_), std::nullopt);
  Write("{\"step_seconds\":6}\n{\"step_seconds\":99");
  EXPECT_EQ(MeasuredStepSeconds(path_), 3);
}

TEST_F(StepSecondsTest, OnlyTheNewestOfALongFile) {
  for (int i = 0; i < 10000; ++i) Write("{\"step_seconds\":7}\n");
  const std::string newest = "{\"step_seconds\":2}\n";
  for (int64_t i = 0; i * newest.size() < kMeasuredTailBytes; ++i) {
    Write(newest);
  }
  EXPECT_EQ(MeasuredStepSeconds(path_), 2);
}

}  // namespace
}  // namespace roundhouse
