#include "server/planning/plan_question.h"

#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "base/model/parameters.h"
#include "gtest/gtest.h"
#include "server/spec/spec_error.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

constexpr char kModels[] = "scheduler/testdata/models/";

// Paths mean themselves; directories and files are told apart.
absl::StatusOr<std::string> Resolve(const std::string& field,
                                    const std::string& path, PathKind kind) {
  const bool file = absl::EndsWith(path, ".json");
  EXPECT_EQ(kind, file ? PathKind::kFile : PathKind::kModelConfig);
  EXPECT_EQ(field, "model");
  if (path == "outside") {
    return RequestError(FieldReason::kPathOutsideDataRoots, field,
                        "no such path");
  }
  return kModels + path;
}

PlanQuestion Question() {
  PlanQuestion question;
  question.model = "qwen3-32b";
  question.devices = "8xrtx4090";
  return question;
}

TEST(PlanQuestionTest, DefaultsAreAJobs) {
  const auto read = ReadPlanQuestion(Question(), AnyFiles(), Resolve);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->devices.size(), 8u);
  EXPECT_EQ(read->batch_sequences, 8);
  EXPECT_EQ(read->host_memory_bytes, 0);
  EXPECT_EQ(read->host_rate, 200);
  EXPECT_EQ(read->accumulation, Accumulation::kFp32);
  EXPECT_EQ(read->setup.method, TrainingMethod::kFull);
  EXPECT_EQ(read->setup.sequence_tokens, 1024);
  EXPECT_EQ(read->setup.micro_batch_sequences, 0);
  EXPECT_FALSE(read->setup.layer_recompute);
  EXPECT_EQ(read->setup.contributions, Contributions::kModelDtype);
  EXPECT_EQ(read->setup.shape.layer_count, 64);
}

TEST(PlanQuestionTest, ALengthThatIsNotAskedForFitsTheModel) {
  const std::string path = testing::TempDir() + "/small_config.json";
  std::string text =
      ReadTestFile(std::string(kModels) + "qwen3-1.7b/config.json");
  const std::string positions = "\"max_position_embeddings\": 40960";
  ASSERT_NE(text.find(positions), std::string::npos);
  text.replace(text.find(positions), positions.size(),
               "\"max_position_embeddings\": 256");
  WriteTestFile(path, text);
  PlanQuestion question = Question();
  question.model = path;
  const PathResolver as_it_is = [](const std::string&, const std::string& name,
                                   PathKind) { return name; };
  EXPECT_EQ(
      ReadPlanQuestion(question, AnyFiles(), as_it_is)->setup.sequence_tokens,
      256);
  question.max_length = 4096;  // what it would take
  EXPECT_EQ(
      ReadPlanQuestion(question, AnyFiles(), as_it_is)->setup.sequence_tokens,
      4096);
}

TEST(PlanQuestionTest, EveryFieldIsRead) {
  PlanQuestion question = Question();
  question.model = "qwen3-235b/config.json";
  question.devices = "2xh200";
  question.host_memory_bytes = int64_t{800} << 30;
  question.host_bandwidth = 300;
  question.method = "lora";
  question.lora_r = 64;
  question.target_modules = {"o_proj", "k_proj"};
  question.max_length = 31'000;
  question.batch_size = 32;
  question.micro_batch_size = 2;
  question.gradient_checkpointing = "layer";
  question.saved_inputs = "every 3";
  question.determinism = "bitwise";
  question.fp16_accumulation = true;
  const auto read = ReadPlanQuestion(question, AnyFiles(), Resolve);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->setup.shape.model_type, "qwen3_moe");
  EXPECT_EQ(read->devices[1].memory_bytes, int64_t{141} << 30);
  EXPECT_EQ(read->host_memory_bytes, int64_t{800} << 30);
  EXPECT_EQ(read->host_rate, 300);
  EXPECT_EQ(read->setup.method, TrainingMethod::kLora);
  EXPECT_EQ(read->setup.lora_rank, 64);
  EXPECT_EQ(read->setup.lora_targets,
            TargetModuleBit("o_proj") | TargetModuleBit("k_proj"));
  EXPECT_EQ(read->setup.sequence_tokens, 31'000);
  EXPECT_EQ(read->batch_sequences, 32);
  EXPECT_EQ(read->setup.micro_batch_sequences, 2);
  EXPECT_TRUE(read->setup.layer_recompute);
  EXPECT_EQ(read->setup.saved_every, 3);
  EXPECT_EQ(read->setup.contributions, Contributions::kFp32);
  EXPECT_EQ(read->accumulation, Accumulation::kFp16);
  question.target_modules = {"all-linear"};
  question.gradient_checkpointing = "stage";
  question.determinism = "fast";
  const auto all = ReadPlanQuestion(question, AnyFiles(), Resolve);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->setup.lora_targets, kAttentionTargets);
  EXPECT_FALSE(all->setup.layer_recompute);
  EXPECT_EQ(all->setup.contributions, Contributions::kModelDtype);
  EXPECT_TRUE(all->setup.clips);
  question.max_grad_norm = 0;
  EXPECT_FALSE(ReadPlanQuestion(question, AnyFiles(), Resolve)->setup.clips);
}

TEST(PlanQuestionTest, WhatIsWrongNamesItsField) {
  struct Case {
    void (*change)(PlanQuestion*);
    const char* field;
    const char* part;
  };
  const Case cases[] = {
      {[](PlanQuestion* q) { q->model = ""; }, "model", "is missing"},
      {[](PlanQuestion* q) { q->model = "outside"; }, "model", "no such path"},
      {[](PlanQuestion* q) { q->model = "nothing"; }, "model",
       "nothing/config.json"},
      {[](PlanQuestion* q) { q->devices = ""; }, "devices", "is missing"},
      {[](PlanQuestion* q) { q->devices = "8x24GiB"; }, "devices",
       "one of rtx3090"},
      {[](PlanQuestion* q) { q->method = "dpo"; }, "method", "neither full"},
      {[](PlanQuestion* q) { q->lora_r = 8; }, "lora_r", "needs method lora"},
      {[](PlanQuestion* q) { q->target_modules = {"q_proj"}; },
       "target_modules", "needs method lora"},
      {[](PlanQuestion* q) { q->method = "lora", q->lora_r = 4097; }, "lora_r",
       "from 1 to 4096"},
      {[](PlanQuestion* q) {
         q->method = "lora";
         q->target_modules = {"q_proj", "router"};
       },
       "target_modules", "\"router\" is none of"},
      {[](PlanQuestion* q) { q->saved_inputs = "every 65"; }, "saved_inputs",
       "\"every 65\" is none of auto, all, every 2 to every 64"},
      {[](PlanQuestion* q) { q->max_length = -1; }, "max_length", "from 1"},
      {[](PlanQuestion* q) { q->batch_size = 1 << 21; }, "batch_size",
       "from 1"},
      {[](PlanQuestion* q) { q->micro_batch_size = 9; }, "micro_batch_size",
       "9 is not a number from 1 to 8"},
      {[](PlanQuestion* q) { q->host_memory_bytes = -1; }, "host_memory_bytes",
       "below 0"},
      {[](PlanQuestion* q) { q->max_grad_norm = -1; }, "max_grad_norm",
       "-1 is not a number from 0"},
      {[](PlanQuestion* q) { q->max_grad_norm = std::nan(""); },
       "max_grad_norm", "nan"},
      {[](PlanQuestion* q) { q->determinism = "exact"; }, "determinism",
       "neither bitwise nor fast"},
      {[](PlanQuestion* q) { q->gradient_checkpointing = "none"; },
       "gradient_checkpointing", "none of auto, stage, layer"}};
  for (const Case& test : cases) {
    PlanQuestion question = Question();
    test.change(&question);
    const auto read = ReadPlanQuestion(question, AnyFiles(), Resolve);
    ASSERT_FALSE(read.ok()) << test.part;
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ErrorField(read.status()), test.field);
    EXPECT_TRUE(absl::StrContains(read.status().message(), test.part))
        << read.status();
  }
}

}  // namespace
}  // namespace roundhouse
