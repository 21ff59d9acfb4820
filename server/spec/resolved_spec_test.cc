#include <set>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/spec/spec.h"
#include "server/spec/test_spec.h"

namespace roundhouse {
namespace {

TEST(ResolvedSpecTest, AutoBecomesNumbers) {
  const auto spec = With("batch_size: 64");
  const ResolvedSpec one = ResolvedSpec::Resolve(*spec, 4);
  EXPECT_EQ(one.micro_batch_size(), 8);
  EXPECT_EQ(one.micro_batches_per_round(), 8);
  EXPECT_EQ(one.gradient_groups(), 4) << "one a device";
  const ResolvedSpec few = ResolvedSpec::Resolve(*With("batch_size: 3"), 8);
  EXPECT_EQ(few.micro_batch_size(), 1);
  EXPECT_EQ(few.gradient_groups(), 3) << "one a micro-batch";
  EXPECT_EQ(
      ResolvedSpec::Resolve(*With("plan: {forward: [], backward: [[0, 3]]}"), 4)
          .gradient_groups(),
      1);
  EXPECT_EQ(ResolvedSpec::Resolve(*With("batch_size: 1000"), 1)
                .micro_batches_per_round(),
            32);
}

TEST(ResolvedSpecTest, DeterminismIsTheJobsOrThatOfTheDevices) {
  using D = Determinism;
  EXPECT_FALSE(With("")->determinism.has_value());
  EXPECT_EQ(ResolvedSpec::Resolve(*With(""), 1).determinism(), D::kBitwise);
  EXPECT_EQ(ResolvedSpec::Resolve(*With(""), 1, {.determinism = D::kFast})
                .determinism(),
            D::kFast);
  const auto bitwise = With("determinism: bitwise");
  EXPECT_EQ(ResolvedSpec::Resolve(*bitwise, 1, {.determinism = D::kFast})
                .determinism(),
            D::kBitwise);
  EXPECT_EQ(Message(With("determinism: quick")),
            "job.yaml:3: determinism: expected bitwise or fast, got the text "
            "\"quick\"");
  // The word stays, whatever devices the job is taken up on later.
  const ResolvedSpec fast =
      ResolvedSpec::Resolve(*With("bf16: true"), 1, {.determinism = D::kFast});
  EXPECT_EQ(ResolvedSpec::FromJson(fast.ToJson())->determinism(), D::kFast);
  auto older = nlohmann::json::parse(fast.ToJson());
  older.erase("determinism");
  EXPECT_EQ(ResolvedSpec::FromJson(older.dump())->determinism(), D::kBitwise);
}

TEST(ResolvedSpecTest, LengthAndDtypeAreTheJobsOrTheModels) {
  const SpecDefaults model = {.max_length = 256, .dtype = DType::kBF16};
  for (const char* text : {"", "dtype: auto", "max_length: null"}) {
    const ResolvedSpec resolved = ResolvedSpec::Resolve(*With(text), 1, model);
    EXPECT_EQ(resolved.max_length(), 256) << text;
    EXPECT_EQ(resolved.dtype(), DType::kBF16) << text;
    // As they were when it was submitted, whatever the model says later.
    const auto again = ResolvedSpec::FromJson(resolved.ToJson());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->ToJson(), resolved.ToJson());
    EXPECT_EQ(ResolvedSpec::Resolve(again->spec(), 1).ToJson(),
              resolved.ToJson());
  }
  const ResolvedSpec own = ResolvedSpec::Resolve(
      *With("torch_dtype: float16\nmax_length: 300"), 1, model);
  EXPECT_EQ(own.max_length(), 300);
  EXPECT_EQ(own.dtype(), DType::kF16);
}

TEST(ResolvedSpecTest, AdaptersGetPeftsDefaults) {
  EXPECT_FALSE(ResolvedSpec::Resolve(*With(""), 1).adapter().present());
  EXPECT_EQ(ResolvedSpec::Resolve(*With("method: lora"), 1).adapter(),
            (AdapterConfig{8, 8, 0, 0x5}));
  EXPECT_EQ(ResolvedSpec::Resolve(*With("method: lora\nlora_r: 2\n"
                                        "lora_alpha: 3\nlora_dropout: 0.5\n"
                                        "target_modules: [up_proj]"),
                                  1)
                .adapter(),
            (AdapterConfig{2, 3, 0.5, 0x20}));
}

TEST(ResolvedSpecTest, WhatTheJobSaysStays) {
  const auto spec = With(
      "batch_size: 12\nmicro_batch_size: 5\nmicro_batches_per_round: 2\n"
      "gradient_groups: 2");
  const ResolvedSpec resolved = ResolvedSpec::Resolve(*spec, 4);
  EXPECT_EQ(resolved.micro_batch_size(), 5);
  EXPECT_EQ(resolved.micro_batches_per_round(), 2);
  EXPECT_EQ(resolved.gradient_groups(), 2);
}

TEST(ResolvedSpecTest, JsonIsAJobFileThatResolvesToItself) {
  for (const char* more :
       {"", "max_steps: 7\nwarmup_steps: 2\nlearning_rate: 0.1",
        "fp16: true\nmax_grad_norm: 0",
        "bf16: true\nper_device_train_batch_size: 3\n"
        "gradient_accumulation_steps: 5\nmetadata: {a: \"x\\\"y\\n\\u2028\"}",
        "warmup_ratio: 0.03\nplan: {forward: [[0,2]], backward: [[3,4],[0,2]]}"
        "\noutput_name: x\ngradient_checkpointing: layer\noptimizer_mode: "
        "async\nmodel_init: "
        "random",
        "gradient_groups: 8\nplan: {forward: [[0,2]], backward: [[3,4],[0,2]], "
        "forward_width: 8, backward_width: [[3,5],[8]]}",
        "method: lora", "packing: true\ntruncation: drop", "saved_inputs: all",
        "saved_inputs: every 12", "determinism: fast\nbf16: true",
        "priority: urgent",
        "method: lora\nlora_r: 3\nlora_alpha: 0.1\nlora_dropout: 0.05\n"
        "target_modules: [k_proj, up_proj]\nadapter_name_or_path: a"}) {
    const auto spec = With(more);
    ASSERT_TRUE(spec.ok()) << spec.status();
    const ResolvedSpec resolved = ResolvedSpec::Resolve(*spec, 4);
    const auto again = ResolvedSpec::FromJson(resolved.ToJson());
    ASSERT_TRUE(again.ok()) << again.status() << resolved.ToJson();
    EXPECT_EQ(again->spec(), resolved.spec()) << resolved.ToJson();
    EXPECT_EQ(again->ToJson(), resolved.ToJson());
    EXPECT_EQ(ResolvedSpec::Resolve(again->spec(), 7).ToJson(),
              resolved.ToJson());
  }
}

TEST(ResolvedSpecTest, TheLargestEvalPromptsCanBeReadAgain) {
  JobSpec spec = *With("");
  // A byte that takes six in JSON.
  spec.eval_prompts.assign(kMaxEvalPrompts,
                           std::string(kMaxEvalPromptBytes, '\x01'));
  const ResolvedSpec resolved = ResolvedSpec::Resolve(spec, 2);
  const auto again = ResolvedSpec::FromJson(resolved.ToJson());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->spec().eval_prompts == spec.eval_prompts);
}

TEST(ResolvedSpecTest, EveryFieldWithAValueIsInTheJson) {
  auto json = nlohmann::json::parse(
      ResolvedSpec::Resolve(*With("validation_dataset: v\noutput_name: o\n"
                                  "template_date: 2026-01-01\n"
                                  "eval_prompts: [a]\n"
                                  "resume_from_checkpoint: job:a"),
                            2)
          .ToJson());
  json.update(nlohmann::json::parse(
      ResolvedSpec::Resolve(
          *With("method: lora\nadapter_name_or_path: a\nmax_samples: 5\n"
                "dataset_format: text\ndataset_columns: {text: a}\n"
                "saved_inputs: every 2\n"
                "validation_split: 0.5"),
          2)
          .ToJson()));
  const std::set<std::string> stand_ins = {"gradient_accumulation_steps",
                                           "bf16",
                                           "fp16",
                                           "max_steps",
                                           "warmup_ratio",
                                           "warmup_steps"};
  for (const SpecField& field : JobSpecVocabulary()) {
    EXPECT_EQ(json.contains(field.name),
              field.later.empty() && stand_ins.count(field.name) == 0)
        << field.name;
  }
}

TEST(ResolvedSpecTest, FullFineTuningHasNoFieldsOfAdapters) {
  const auto json =
      nlohmann::json::parse(ResolvedSpec::Resolve(*With(""), 2).ToJson());
  for (const char* name : {"lora_r", "lora_alpha", "lora_dropout",
                           "target_modules", "adapter_name_or_path"}) {
    EXPECT_FALSE(json.contains(name)) << name;
  }
}

TEST(ResolvedSpecTest, AutoIsNotResolved) {
  auto json = nlohmann::json::parse(
      ResolvedSpec::Resolve(*With("method: lora"), 2).ToJson());
  EXPECT_TRUE(ResolvedSpec::FromJson(json.dump()).ok());
  json.erase("lora_alpha");
  EXPECT_FALSE(ResolvedSpec::FromJson(json.dump()).ok());
  EXPECT_FALSE(
      ResolvedSpec::FromJson("{\"model\": \"m\", \"dataset\": \"d\"}").ok());
}

}  // namespace
}  // namespace roundhouse
