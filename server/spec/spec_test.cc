#include "server/spec/spec.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/spec/spec_error.h"
#include "server/spec/test_spec.h"

namespace roundhouse {
namespace {
using enum FieldReason;

void ExpectError(const std::string& more, FieldReason reason,
                 const std::string& field, const std::string& message) {
  const auto result = With(more);
  EXPECT_EQ(Message(result), message) << more;
  EXPECT_EQ(ErrorReason(result.status()), reason) << more;
  EXPECT_EQ(ErrorField(result.status()), field) << more;
}

TEST(SpecTest, DefaultsAreThoseOfTrainingArguments) {
  const auto spec = Parse(kLeast);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model_name_or_path, "m");
  EXPECT_EQ(spec->dataset, std::vector<std::string>{"d.jsonl"});
  EXPECT_EQ(spec->num_train_epochs, 3);
  EXPECT_EQ(spec->learning_rate, 5e-5);
  EXPECT_EQ(spec->lr_scheduler_type, LrSchedulerType::kLinear);
  EXPECT_EQ(spec->max_grad_norm, 1.0);
  EXPECT_EQ(spec->adam_beta2, 0.999);
  EXPECT_EQ(spec->adam_epsilon, 1e-8);
  EXPECT_EQ(spec->weight_decay, 0);
  EXPECT_EQ(spec->seed, 42);
  EXPECT_EQ(spec->batch_size, 8);
  EXPECT_EQ(spec->save_steps, 500);
  EXPECT_FALSE(spec->micro_batch_size.has_value());
  EXPECT_FALSE(spec->plan.has_value());
}

TEST(SpecTest, JsonTextIsRead) {
  const auto spec = Parse(
      "{\n\t\"model_name_or_path\": \"m\", \"dataset\": \"a\\u00e9\\/b\",\n"
      "\"learning_rate\": 1e-3, \"metadata\": {\"team\": \"x\"}}");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->learning_rate, 1e-3);
  EXPECT_EQ(spec->dataset, std::vector<std::string>{"a\u00e9/b"});
  ASSERT_EQ(spec->metadata.size(), 1u);
  EXPECT_EQ(spec->metadata[0].second, "x");
}

TEST(SpecTest, EveryAliasMeansItsField) {
  const auto spec = Parse(
      "base_model: m\ntrain_file: t\neval_dataset: v\ncutoff_len: 77\n"
      "n_epochs: 2.5\nprecision: bf16\nsuffix: out\noptimizer: adamw\n"
      "finetuning_type: full\nsample_packing: false\n");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model_name_or_path, "m");
  EXPECT_EQ(spec->dataset, std::vector<std::string>{"t"});
  EXPECT_EQ(spec->validation_dataset, std::vector<std::string>{"v"});
  EXPECT_EQ(spec->max_length, 77);
  EXPECT_EQ(spec->num_train_epochs, 2.5);
  EXPECT_EQ(spec->dtype, DType::kBF16);
  EXPECT_EQ(spec->output_name, "out");
}

TEST(SpecTest, OneThingUnderTwoNamesIsAnError) {
  ExpectError("base_model: x", kConflictingFields, "base_model",
              "job.yaml:3: base_model: model_name_or_path (line 1) says the "
              "same; keep one of them");
  ExpectError("bf16: true\ndtype: fp32", kConflictingFields, "bf16",
              "job.yaml:3: bf16: dtype (line 4) says the dtype too; keep one "
              "of them");
  ExpectError("warmup_steps: 3\nwarmup_ratio: 0.1", kConflictingFields,
              "warmup_steps",
              "job.yaml:3: warmup_steps: warmup_ratio (line 4) says how long "
              "the warm-up is too; keep one of them");
  ExpectError("num_train_epochs: 1\nmax_steps: 5", kConflictingFields,
              "max_steps",
              "job.yaml:4: max_steps: num_train_epochs (line 3) says when the "
              "job ends too; keep one of them");
  ExpectError("seed: 1\nseed: 2", kDuplicateField, "seed",
              "job.yaml:4: seed: is given twice; keep one of them");
}

TEST(SpecTest, UnknownFieldsNameTheNearest) {
  ExpectError("lerning_rate: 1", kUnknownField, "lerning_rate",
              "job.yaml:3: lerning_rate: unknown field; did you mean "
              "learning_rate?");
  ExpectError("max_step: 1", kUnknownField, "max_step",
              "job.yaml:3: max_step: unknown field; did you mean max_steps?");
  ExpectError("zzzzzz: null", kUnknownField, "zzzzzz",
              "job.yaml:3: zzzzzz: unknown field; roundhouse job-template "
              "shows the usual ones, docs/job-spec.md all");
}

TEST(SpecTest, MissingFields) {
  const auto no_model = Parse("dataset: d");
  EXPECT_EQ(Message(no_model),
            "job.yaml: model_name_or_path is missing; every job needs it");
  EXPECT_EQ(ErrorReason(no_model.status()), kMissingField);
  EXPECT_EQ(ErrorField(Parse("model: m\ndataset: null").status()), "dataset");
}

TEST(SpecTest, InputsAreSavedAllOrOneOfSomeStages) {
  EXPECT_EQ(FindSavedInputs("auto"), 0);
  EXPECT_EQ(FindSavedInputs("all"), 1);
  EXPECT_EQ(FindSavedInputs("every 2"), 2);
  EXPECT_EQ(FindSavedInputs("every 64"), 64);
  for (const char* text : {"", "every", "every ", "every 1", "every 65",
                           "every 02", "every  2", "every 2 ", "Every 2",
                           "every -2", "every 2.0", "every 4294967298", "2"}) {
    EXPECT_FALSE(FindSavedInputs(text).has_value()) << text;
  }
  ExpectError("saved_inputs: 2", kInvalidValue, "saved_inputs",
              "job.yaml:3: saved_inputs: expected auto, all, every 2 to every "
              "64, got the number 2");
}

TEST(SpecTest, TypesAndRanges) {
  ExpectError("batch_size: 0", kInvalidValue, "batch_size",
              "job.yaml:3: batch_size: expected an integer from 1 to 1000000, "
              "got the number 0");
  ExpectError("learning_rate: \"1e-3\"", kInvalidValue, "learning_rate",
              "job.yaml:3: learning_rate: expected a number, got the text "
              "\"1e-3\"; write it without quotes");
  ExpectError("adam_beta1: 1", kInvalidValue, "adam_beta1",
              "job.yaml:3: adam_beta1: expected a number from 0 to below 1, "
              "got the number 1");
  ExpectError("seed: 99999999999999999999999", kInvalidValue, "seed",
              "job.yaml:3: seed: expected an integer from 0 to 4294967295, got "
              "the number 99999999999999999999999");
  ExpectError(
      "dtype: int4", kInvalidValue, "dtype",
      "job.yaml:3: dtype: expected auto, fp32, bf16 or fp16, got the text "
      "\"int4\"");
  ExpectError("bf16: 1", kInvalidValue, "bf16",
              "job.yaml:3: bf16: expected true or false, got the number 1");
  ExpectError("output_name: ../x", kInvalidValue, "output_name",
              "job.yaml:3: output_name: expected 1 to 64 of letters, digits, "
              "'.', '_', '-', not beginning with '.', got the text \"../x\"");
  for (const char* bad :
       {"learning_rate: .nan", "learning_rate: .inf", "learning_rate: -1",
        "learning_rate: 1e999", "max_steps: 2.5", "num_train_epochs: 0",
        "dataset: [[a]]", "metadata: [1]", "seed: {a: 1}", "warmup_ratio: 2",
        "micro_batch_size: small", "max_length: true"}) {
    const auto result = Parse(absl::StrCat("model: m\n", bad, "\n"));
    EXPECT_EQ(ErrorReason(result.status()), kInvalidValue) << bad;
  }
}

TEST(SpecTest, MetadataIsBounded) {
  std::string many = "metadata:\n";
  for (int i = 0; i < 16; ++i) absl::StrAppend(&many, "  k", i, ": v\n");
  EXPECT_TRUE(With(many).ok());
  EXPECT_FALSE(With(many + "  one_more: v\n").ok());
  EXPECT_FALSE(
      With(absl::StrCat("metadata: {k: ", std::string(513, 'x'), "}")).ok());
}

TEST(SpecTest, ABatchOfManyAccumulatedStepsIsLimited) {
  ExpectError(
      "micro_batch_size: 8\ngradient_accumulation_steps: 1000000",
      kInvalidValue, "gradient_accumulation_steps",
      "job.yaml:4: gradient_accumulation_steps: times the micro-batch is a "
      "batch_size of 8000000; at most 1000000");
}

TEST(SpecTest, Fp16HasTwoNames) {
  for (const char* text :
       {"fp16: true", "dtype: fp16", "precision: fp16\nbf16: false",
        "fp16: true\nbf16: false\noptimizer_mode: sync"}) {
    const auto spec = With(text);
    ASSERT_TRUE(spec.ok()) << text << ": " << spec.status();
    EXPECT_EQ(spec->dtype, DType::kF16) << text;
  }
  ExpectError("fp16: true\ndtype: fp16", kConflictingFields, "fp16",
              "job.yaml:3: fp16: dtype (line 4) says the dtype too; keep one "
              "of them");
  ExpectError("bf16: true\nfp16: true", kConflictingFields, "fp16",
              "job.yaml:4: fp16: bf16 (line 3) says the dtype too; keep one of "
              "them");
  ExpectError("fp16: yes please", kInvalidValue, "fp16",
              "job.yaml:3: fp16: expected true or false, got the text "
              "\"yes please\"");
}

// A step of it begins before the one before is reduced.
TEST(SpecTest, AnAsynchronousOptimizerHasNoLossScale) {
  for (const char* name : {"fp16: true", "dtype: fp16"}) {
    const bool flag = absl::StartsWith(name, "fp16");
    ExpectError(absl::StrCat("optimizer_mode: async\n", name),
                kConflictingFields, "optimizer_mode",
                absl::StrCat("job.yaml:3: optimizer_mode: async does not go "
                             "with fp16 (",
                             flag ? "" : "dtype, ",
                             "line 4), whose loss scale is known only when the "
                             "step before is reduced; say sync or bf16"));
  }
  EXPECT_TRUE(With("optimizer_mode: async\nfp16: false\nbf16: true").ok());
}

TEST(SpecTest, LaterPartsAreRefusedByNameAndNeverIgnored) {
  for (const char* text :
       {"objective: dpo", "resources: {max_devices: 1}", "max_runtime: 1h",
        "retry: 2", "lr_scheduler_type: polynomial", "optim: lion"}) {
    const auto result = With(text);
    const std::string field = std::string(text, std::string(text).find(':'));
    EXPECT_TRUE(absl::IsUnimplemented(result.status())) << text;
    EXPECT_EQ(ErrorField(result.status()), field) << text;
    EXPECT_TRUE(absl::StrContains(Message(result),
                                  " is not available in this version; "))
        << text;
  }
  EXPECT_EQ(Message(With("objective: dpo")),
            "job.yaml:3: objective: dpo is not available in this version; "
            "say sft (later: preference training)");
}

TEST(SpecTest, APriorityIsOneOfThree) {
  for (const Priority priority : kPriorities) {
    const auto spec = With(absl::StrCat("priority: ", PriorityName(priority)));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->priority, priority);
  }
  EXPECT_EQ(With("")->priority, Priority::kNormal);
  EXPECT_TRUE(absl::StrContains(Message(With("priority: idle")),
                                "normal, urgent or backfill"));
}

TEST(SpecTest, TheirDefaultsAreAccepted) {
  EXPECT_TRUE(With("method: full\npacking: false\nfp16: false\n"
                   "eval_steps: null\noptimizer_mode: sync\nretry: ~\n"
                   "load_best_model_at_end: false\npriority: normal\n"
                   "determinism: bitwise\nobjective: sft\nmax_steps: -1")
                  .ok());
}

TEST(SpecTest, EvaluationsDuringTraining) {
  const std::string every = "validation_dataset: v\neval_steps: 5\n";
  const auto spec = With(every +
                         "load_best_model_at_end: true\n"
                         "early_stopping_patience: 3\n");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->eval_steps, 5);
  EXPECT_TRUE(spec->load_best_model_at_end);
  EXPECT_EQ(spec->early_stopping_patience, 3);
  const auto none = With("");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->eval_steps, 0);
  EXPECT_FALSE(none->load_best_model_at_end);
  EXPECT_EQ(none->early_stopping_patience, 0);
  EXPECT_TRUE(With("eval_steps: 0\nearly_stopping_patience: 0").ok());
}

TEST(SpecTest, EvaluationsNeedASetAndWhen) {
  for (const char* field : {"eval_steps: 5", "load_best_model_at_end: true",
                            "early_stopping_patience: 3"}) {
    const std::string name = std::string(field, std::string(field).find(':'));
    const auto result = With(field);
    EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << field;
    EXPECT_EQ(ErrorField(result.status()), name);
    EXPECT_EQ(Message(result),
              absl::StrCat("job.yaml:3: ", name, ": needs a validation_dataset",
                           name == "eval_steps"
                               ? ", a validation_split or eval_prompts "
                                 "beside it"
                               : " or a validation_split beside it"));
    if (name == "eval_steps") continue;
    const auto seldom = With(absl::StrCat(field, "\nvalidation_dataset: v"));
    EXPECT_EQ(ErrorField(seldom.status()), name);
    EXPECT_EQ(Message(seldom), absl::StrCat("job.yaml:3: ", name,
                                            ": needs eval_steps beside it"));
  }
}

TEST(SpecTest, EvalPromptsAreAFewTexts) {
  const auto spec =
      With("eval_prompts: [one, \"2\", 'a\u00e9']\neval_steps: 5");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->eval_prompts,
            (std::vector<std::string>{"one", "2", "a\u00e9"}));
  EXPECT_TRUE(With("")->eval_prompts.empty());
  std::string most = "eval_prompts:\n";
  for (int i = 0; i < 16; ++i) absl::StrAppend(&most, "- p", i, "\n");
  EXPECT_EQ(With(most)->eval_prompts.size(), kMaxEvalPrompts);
  const std::string longest(kMaxEvalPromptBytes, 'x');
  EXPECT_TRUE(With(absl::StrCat("eval_prompts: [", longest, "]")).ok());
  const std::pair<std::string, std::string> bad[] = {
      {most + "- p16", "expected a list of 1 to 16 texts, got 17"},
      {"eval_prompts: []", "expected a list of 1 to 16 texts, got 0"},
      {"eval_prompts: one",
       "expected a list of 1 to 16 texts, got the text \"one\""},
      {"eval_prompts: [a, \"\"]",
       "[1]: expected a text of 1 to 8192 bytes, got the text \"\""},
      {"eval_prompts: [a, 7]",
       "[1]: expected a text of 1 to 8192 bytes, got the number 7"},
      {"eval_prompts: [null]",
       "[0]: expected a text of 1 to 8192 bytes, got nothing"},
      {"eval_prompts: [[a]]",
       "[0]: expected a text of 1 to 8192 bytes, got a list"},
      {absl::StrCat("eval_prompts: [", longest, "x]"),
       "[0]: expected a text of 1 to 8192 bytes, got 8193 bytes"}};
  for (const auto& [text, message] : bad) {
    ExpectError(text, kInvalidValue, "eval_prompts",
                absl::StrCat("job.yaml:3: eval_prompts: ", message));
  }
}

TEST(SpecTest, EvalPromptsAreEnoughForEvalStepsOnly) {
  EXPECT_TRUE(With("eval_prompts: [a]\neval_steps: 5").ok());
  const auto best =
      With("eval_prompts: [a]\neval_steps: 5\nload_best_model_at_end: true");
  EXPECT_EQ(Message(best),
            "job.yaml:5: load_best_model_at_end: needs a validation_dataset or "
            "a validation_split beside it");
}

TEST(SpecTest, AdaptersOfALoraJob) {
  auto spec = With(
      "finetuning_type: lora\nlora_rank: 16\nlora_alpha: 32.5\n"
      "lora_dropout: 0.1\ntarget_modules: [down_proj, q_proj]\n"
      "adapter_name_or_path: a");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->method, TrainingMethod::kLora);
  EXPECT_EQ(spec->lora_r, 16);
  EXPECT_EQ(spec->lora_alpha, 32.5);
  EXPECT_EQ(spec->lora_dropout, 0.1);
  EXPECT_EQ(spec->target_modules, 0x41u);
  EXPECT_EQ(spec->adapter_name_or_path, "a");
  spec = With("method: lora\nr: 4\ntarget_modules: all-linear");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->lora_r, 4);
  EXPECT_EQ(spec->target_modules, kAllLinear);
  EXPECT_FALSE(spec->lora_alpha.has_value());
  EXPECT_EQ(Parse(kLeast)->method, TrainingMethod::kFull);
}

TEST(SpecTest, FieldsOfAdaptersNeedTheirMethod) {
  for (const char* text :
       {"lora_r: 8", "lora_alpha: 16", "lora_dropout: 0",
        "target_modules: all-linear", "adapter_name_or_path: a", "r: 8"}) {
    const std::string field = std::string(text, std::string(text).find(':'));
    for (const char* method : {"", "method: full\n"}) {
      const int line = *method == '\0' ? 3 : 4;
      ExpectError(absl::StrCat(method, text), kConflictingFields, field,
                  absl::StrCat("job.yaml:", line, ": ", field,
                               ": belongs to method: lora, and the job's "
                               "method is full; say method: lora or remove "
                               "this line"));
    }
  }
  EXPECT_TRUE(With("lora_r: null").ok());
  ExpectError("method: lora\nmodel_init: random", kConflictingFields,
              "model_init",
              "job.yaml:4: model_init: method: lora needs the weights of a "
              "model to adapt; remove this line");
  ExpectError(
      "method: lora\nadapter_name_or_path: a\n"
      "resume_from_checkpoint: c",
      kConflictingFields, "adapter_name_or_path",
      "job.yaml:4: adapter_name_or_path: resume_from_checkpoint (line 5) "
      "says where the adapter starts from too; keep one of them");
}

TEST(SpecTest, WrongAdaptersSayWhatIsWrong) {
  const std::string modules =
      "expected all-linear, or a list of q_proj, k_proj, v_proj, o_proj, "
      "gate_proj, up_proj, down_proj, got ";
  const std::pair<const char*, std::string> cases[] = {
      {"lora_r: 0", "expected an integer from 1 to 4096, got the number 0"},
      {"lora_r: auto",
       "expected an integer from 1 to 4096, got the text \"auto\""},
      {"lora_alpha: 0", "expected a number above 0 to 1e+06, got the number 0"},
      {"lora_dropout: 1",
       "expected a number from 0 to below 1, got the number 1"},
      {"target_modules: q_proj,q", modules + "the text \"q\""},
      {"target_modules: []", modules + "a list"},
      {"target_modules: [q_proj, lm_head]", modules + "the text \"lm_head\""},
      {"target_modules: [[q_proj]]", modules + "a list"},
  };
  for (const auto& [text, message] : cases) {
    const std::string field = std::string(text, std::string(text).find(':'));
    ExpectError(absl::StrCat("method: lora\n", text), kInvalidValue, field,
                absl::StrCat("job.yaml:4: ", field, ": ", message));
  }
}

TEST(SpecTest, PackingAndTruncation) {
  EXPECT_FALSE(Parse(kLeast)->packing);
  EXPECT_EQ(Parse(kLeast)->truncation, Truncation::kRight);
  EXPECT_TRUE(With("sample_packing: true")->packing);
  EXPECT_EQ(With("truncation: left")->truncation, Truncation::kLeft);
  EXPECT_EQ(With("truncation: drop")->truncation, Truncation::kDrop);
  EXPECT_EQ(With("template_date: 2026-02-28")->template_date, "2026-02-28");
  for (const char* bad : {"2026-02-30", "2026-2-8", "28.2.2026", "2026-02"}) {
    ExpectError(absl::StrCat("template_date: \"", bad, "\""), kInvalidValue,
                "template_date",
                absl::StrCat("job.yaml:3: template_date: expected a date as "
                             "YYYY-MM-DD, got the text \"",
                             bad, "\""));
  }
  ExpectError("packing: 1", kInvalidValue, "packing",
              "job.yaml:3: packing: expected true or false, got the number 1");
}

TEST(SpecTest, BatchNamesOfOtherTools) {
  auto spec =
      With("per_device_train_batch_size: 4\ngradient_accumulation_steps: 6");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->batch_size, 24);
  EXPECT_EQ(spec->micro_batch_size, 4);
  spec = With("per_device_train_batch_size: 2");
  EXPECT_EQ(spec->batch_size, 2);
  EXPECT_EQ(With("micro_batch_size: 2")->batch_size, 8);
  ExpectError(
      "batch_size: 8\nper_device_train_batch_size: 2\n"
      "gradient_accumulation_steps: 4",
      kConflictingFields, "gradient_accumulation_steps",
      "job.yaml:5: gradient_accumulation_steps: batch_size (line 3) says "
      "the size of a step's batch too; keep one of them");
  ExpectError("gradient_accumulation_steps: 4", kMissingField,
              "gradient_accumulation_steps",
              "job.yaml:3: gradient_accumulation_steps: needs "
              "per_device_train_batch_size beside it");
  ExpectError("micro_batch_size: 9", kInvalidValue, "micro_batch_size",
              "job.yaml:3: micro_batch_size: 9 is more than the batch_size of "
              "8; write that or less");
  ExpectError("gradient_groups: 9", kInvalidValue, "gradient_groups",
              "job.yaml:3: gradient_groups: 9 groups of 8 micro-batches at "
              "most");
}

TEST(SpecTest, ConstantWithWarmupHasItsOwnName) {
  ExpectError("lr_scheduler_type: constant\nwarmup_steps: 2",
              kConflictingFields, "lr_scheduler_type",
              "job.yaml:3: lr_scheduler_type: constant has no warm-up; say "
              "constant_with_warmup");
  EXPECT_TRUE(
      With("lr_scheduler_type: constant_with_warmup\nwarmup_steps: 2").ok());
}

TEST(SpecTest, ExplicitPlan) {
  const auto spec = With(
      "plan:\n  forward: [[0, 1], [2, 2]]\n"
      "  backward: [[3, 4], [1, 2], [0, 0]]");
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_TRUE(spec->plan.has_value());
  EXPECT_EQ(spec->plan->forward[1], (StageRange{2, 2}));
  EXPECT_EQ(spec->plan->backward[0], (StageRange{3, 4}));
  EXPECT_TRUE(With("plan: {forward: [], backward: [[0, 4]]}").ok());
}

TEST(SpecTest, WidthsAreGivenOnceOrByStage) {
  const auto all = With(
      "gradient_groups: 4\n"
      "plan: {forward: [[0, 1]], backward: [[2, 4], [0, 1]], width: 4}");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->plan->forward_width, std::vector<StageWidth>{{4}});
  EXPECT_EQ(all->plan->backward_width, (std::vector<StageWidth>(2, {4})));
  const auto some = With(
      "gradient_groups: 8\n"
      "plan: {forward: [[0, 1]], backward: [[2, 4], [0, 1]], "
      "backward_width: [[3, 5], 2]}");
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->plan->forward_width, std::vector<StageWidth>{{1}});
  EXPECT_EQ(some->plan->backward_width,
            (std::vector<StageWidth>{{1, {3, 5}}, {2}}));
  EXPECT_EQ(some->plan->backward_width[0].devices(), 2);
  EXPECT_EQ(some->plan->backward_width[1].devices(), 2);
  // Width 1 is what a plan without widths says.
  const auto one =
      With("plan: {forward: [[0, 1]], backward: [[2, 4], [0, 1]], width: 1}");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_TRUE(one->plan->forward_width.empty());
  EXPECT_TRUE(one->plan->backward_width.empty());
}

TEST(SpecTest, WrongWidthsSayWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"width: 5",
       "forward_width[0] is 5 devices wide, but gradient_groups is 4: each "
       "device runs at least one group"},
      {"backward_width: [1, 5]",
       "backward_width[1] is 5 devices wide, but gradient_groups is 4: each "
       "device runs at least one group"},
      {"backward_width: [[1, 2], 4]",
       "backward_width[0] has 1 + 2 groups, but gradient_groups is 4"},
      {"forward_width: [2, 2]", "forward_width: has 2 entries for 1 stages"},
      {"forward_width: [[]]",
       "forward_width: expected a number of devices, or 1 to 1024 numbers of "
       "groups, got a list"},
      {"width: 0",
       "width: expected an integer from 1 to 1024, got the number 0"},
      {"backward_width: [2, wide]",
       "backward_width: expected an integer from 1 to 1024, got the text "
       "\"wide\""},
      {"width: [2]",
       "width is one number; forward_width and backward_width have an entry "
       "for each stage"},
      {"width: 2, backward_width: 2",
       "width says it for every stage; give it or forward_width and "
       "backward_width"},
      {"widths: 2",
       "unknown field \"widths\"; it has forward, backward, width, "
       "forward_width and backward_width"},
  };
  for (const auto& [widths, message] : cases) {
    ExpectError(
        absl::StrCat("gradient_groups: 4\nplan: {forward: [[0, 1]], backward: "
                     "[[2, 4], [0, 1]], ",
                     widths, "}"),
        kInvalidValue, "plan", absl::StrCat("job.yaml:4: plan: ", message));
  }
  ExpectError("plan: {forward: [], backward: [[0, 4]], width: 2}",
              kInvalidValue, "plan",
              "job.yaml:3: plan: backward_width[0] is 2 devices wide, but "
              "gradient_groups is 1: each device runs at least one group");
}

TEST(SpecTest, WrongPlansSayWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"{forward: [[0, 1]]}", "needs both forward and backward"},
      {"{forward: [], backward: []}", "backward needs at least one stage"},
      {"{forward: [[0, 2]], backward: [[2, 4], [0, 1]]}",
       "forward ends before layer 3, but the fused stage (the first of "
       "backward) begins with layer 2"},
      {"{forward: [[0, 1]], backward: [[2, 4], [0, 0]]}",
       "backward stage 1 ends with layer 0, but 1 comes next"},
      {"{forward: [[0, 1]], backward: [[2, 4], [1, 1]]}",
       "backward does not reach layer 0"},
      {"{forward: [[1, 1]], backward: [[2, 4], [0, 1]]}",
       "forward stage 0 begins with layer 1, but 0 comes next"},
      {"{forward: [[1, 0]], backward: [[0, 4]]}",
       "the stage [1, 0] ends before it begins"},
      {"{forward: [3], backward: [[0, 4]]}",
       "expected a stage as [first layer, last layer], got the number 3"},
      {"{forwards: []}",
       "unknown field \"forwards\"; it has forward, backward, width, "
       "forward_width and backward_width"},
      {"fast",
       "expected auto, or forward and backward stages, got the text \"fast\""},
  };
  for (const auto& [plan, message] : cases) {
    ExpectError(absl::StrCat("plan: ", plan), kInvalidValue, "plan",
                absl::StrCat("job.yaml:3: plan: ", message));
  }
}

TEST(SpecTest, BadSyntaxNamesTheLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"a: [1, 2\nb: }", "job.yaml:2: not YAML"},
      {"a: 1\n---\nb: 2", "job.yaml:1: expected one YAML document, got more"},
      {"", "job.yaml:1: the file is empty"},
      {"- a\n- b", "job.yaml:1: expected fields (name: value), got a list"},
      {"just text", "job.yaml:1: expected fields (name: value), got the text"},
      {"dataset: !!binary aGk=", "job.yaml:1: YAML tags are not accepted"},
      {"dataset: \"a\\0b\"", "job.yaml:1: a text holds a zero byte"},
      {"model: m\n[1]: 2", "job.yaml:2: a key must be a name"},
      {"dataset: \xff\xfe", "job.yaml:1: not UTF-8"},
      {std::string("data\0set: x", 11), "job.yaml:1: a zero byte"},
  };
  for (const auto& [text, message] : cases) {
    const auto result = Parse(text);
    EXPECT_TRUE(absl::StartsWith(Message(result), message)) << text << "\n"
                                                            << Message(result);
    EXPECT_TRUE(absl::IsInvalidArgument(result.status()));
  }
}

TEST(SpecTest, SizeDepthAndAliasesAreBounded) {
  EXPECT_FALSE(Parse(std::string((1 << 20) + 1, ' ')).ok());
  std::string deep = "metadata: ";
  for (int i = 0; i < 400; ++i) deep += "[";
  EXPECT_FALSE(With(deep).ok());
  EXPECT_FALSE(With("metadata: {a: [[[[[[[[1]]]]]]]]}").ok());
  // Refused before the YAML library reads a whole flow collection.
  for (const char* unit : {"[", "{a: ", "[],", "\"\",", "''", "&a ", "? "}) {
    std::string text = "metadata: [\n";
    while (text.size() < 1'000'000) text += unit;
    const std::string message = Message(Parse(text));
    EXPECT_TRUE(absl::StartsWith(message, "job.yaml:2: more than 65536 "))
        << unit << message;
  }
  std::string many = "metadata: [";
  for (int i = 0; i < 10001; ++i) many += "1,";
  EXPECT_TRUE(
      absl::StrContains(Message(With(many + "]")), "more than 10000 values"));
  EXPECT_EQ(Message(With("metadata: {a: &x 1, b: *x}")),
            "job.yaml:3: YAML anchors are not accepted; write each value out");
  // The library gives documents for ever after this one.
  EXPECT_FALSE(Parse("a: 1\n]\n").ok());
  EXPECT_FALSE(Parse("]").ok());
}

}  // namespace
}  // namespace roundhouse
