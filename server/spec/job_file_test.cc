#include "server/spec/job_file.h"

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/spec/other_fields.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

constexpr char kLeast[] = "model_name_or_path: m\ndataset: d.jsonl\n";

JobFile Read(const std::string& text) {
  auto file = ReadJobFile(text, "job.yaml");
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

JobFile With(const std::string& more) {
  return Read(absl::StrCat(kLeast, more, "\n"));
}

std::string Message(const JobFile& file) {
  return std::string(file.status().message());
}

// Elsewhere neither of the two means fp32.
TEST(JobFileTest, FlagsOfDtypesThatAreFalseMeanFp32) {
  for (const char* text : {"bf16: false", "fp16: false\nbf16: false"}) {
    EXPECT_EQ(With(text).spec().dtype, DType::kF32) << text;
  }
  EXPECT_EQ(With("torch_dtype: auto\nbf16: false").spec().dtype, std::nullopt);
  EXPECT_EQ(With("torch_dtype: auto\nbf16: true").spec().dtype, DType::kBF16);
}

TEST(JobFileTest, AFileToTrainOnAndToValidateWithIsWarnedOf) {
  JobFile file = With("validation_dataset: [other.jsonl, same.jsonl]");
  file.spec().dataset = {"first.jsonl", "same.jsonl"};
  file.WarnOfSharedData();
  EXPECT_EQ(file.warnings(),
            std::vector<std::string>{
                "job.yaml: same.jsonl is in dataset and in validation_dataset: "
                "eval_loss does not say how the model does on new data"});
}

TEST(JobFileTest, AllErrorsAreInOneAnswerByLine) {
  const JobFile file = Read(
      "lerning_rate: 1\n"
      "batch_size: many\n"
      "lora_r: 8\n"
      "seed: 1\n"
      "optim: lion\n"
      "warmup_ratio: 0.1\n"
      "warmup_steps: 3\n"
      "seed: 2\n"
      "gradient_accumulation_steps: 2\n"
      "base_model: m\n"
      "model: m\n"
      "eval_steps: 5\n");
  EXPECT_EQ(
      Message(file),
      "job.yaml has 9 errors\n"
      "line 1: lerning_rate: unknown field; did you mean learning_rate?\n"
      "line 2: batch_size: expected an integer from 1 to 1000000, got the text "
      "\"many\"\n"
      "line 3: lora_r: belongs to method: lora, and the job's method is full; "
      "say method: lora or remove this line\n"
      "line 5: optim: lion is not available in this version; say adamw, "
      "adamw_torch or adamw_torch_fused (later: more optimizers)\n"
      "line 7: warmup_steps: warmup_ratio (line 6) says how long the warm-up "
      "is too; keep one of them\n"
      "line 8: seed: is given twice; keep one of them\n"
      "line 11: model: base_model (line 10) says the same; keep one of them\n"
      "line 12: eval_steps: needs a validation_dataset, a validation_split or "
      "eval_prompts beside it\n"
      "dataset is missing; every job needs it");
  EXPECT_TRUE(absl::IsInvalidArgument(file.status()));
  const std::vector<FieldFault> faults = ErrorFaults(file.status());
  ASSERT_EQ(faults.size(), 9u);
  EXPECT_EQ(faults[0].field, "lerning_rate");
  EXPECT_EQ(faults[6].field, "model");
  EXPECT_EQ(faults[8].message, "dataset is missing; every job needs it");
}

TEST(JobFileTest, OnlyLaterPartsAreUnimplemented) {
  EXPECT_TRUE(
      absl::IsUnimplemented(With("optim: lion\nobjective: dpo").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(With("optim: lion\nseed: x").status()));
}

TEST(JobFileTest, AFaultBringsNoOthers) {
  for (const char* text :
       {"method: lroa\nlora_r: 3\nlora_alpha: 5\ntarget_modules: all",
        "micro_batch_size: x\ngradient_accumulation_steps: 4",
        "gradient_groups: x\nplan: {forward: [[0, 1]], backward: [[2, 4], [0, "
        "1]], width: 4}",
        "validation_dataset: [[1]]\neval_steps: 3\nload_best_model_at_end: "
        "true",
        "eval_steps: x\nload_best_model_at_end: true\nvalidation_dataset: v"}) {
    EXPECT_TRUE(ErrorFaults(With(text).status()).empty())
        << Message(With(text));
    EXPECT_FALSE(With(text).status().ok());
  }
  EXPECT_EQ(Message(Read("model: m\ndataset: {a: b}")).substr(0, 29),
            "job.yaml:2: dataset: expected");
}

TEST(JobFileTest, AnAnswerHasRoomForSoMany) {
  std::string many;
  for (int i = 0; i < 3000; ++i) absl::StrAppend(&many, "zzzzz", i, ": 1\n");
  const JobFile file = With(many);
  const std::string message = Message(file);
  EXPECT_TRUE(absl::StartsWith(message, "job.yaml has 3000 errors\n"));
  EXPECT_LT(message.size(), kMaxFaultBytes + 200);
  EXPECT_TRUE(absl::EndsWith(message, " more, which an answer has no room for"))
      << message;
  // A name may be as long as a file.
  EXPECT_LT(Message(With(std::string(1000, 'x') + ": 1")).size(), 200u);
}

TEST(JobFileTest, ErrorsOfOthersGetLineAndWord) {
  JobFile file = Read("base_model: m\ndataset: d\n");
  const absl::Status there = FieldError(FieldReason::kInvalidModel,
                                        "model_name_or_path", "x is missing");
  EXPECT_EQ(file.Located(there).message(),
            "job.yaml:1: base_model: x is missing");
  EXPECT_EQ(ErrorField(file.Located(there)), "base_model");
  EXPECT_EQ(ErrorReason(file.Located(there)), FieldReason::kInvalidModel);
  const absl::Status other = FieldError(FieldReason::kQuota, "", "busy");
  EXPECT_EQ(file.Located(other), other);
  EXPECT_TRUE(file.status().ok());
  file.AddFaultOf(there);
  file.AddFaultOf(FieldError(FieldReason::kInvalidValue, "output_name", "no"));
  EXPECT_EQ(Message(file),
            "job.yaml has 2 errors\nline 1: base_model: x is missing\n"
            "output_name: no");
}

TEST(JobFileTest, BooleansAsYamlWritersSpellThem) {
  for (const char* word : {"true", "True", "TRUE", "yes", "Yes", "on", "ON"}) {
    EXPECT_TRUE(With(absl::StrCat("packing: ", word)).spec().packing) << word;
  }
  for (const char* word : {"false", "False", "FALSE", "no", "No", "off"}) {
    const JobFile file = With(absl::StrCat("packing: ", word));
    EXPECT_TRUE(file.status().ok()) << word;
    EXPECT_FALSE(file.spec().packing) << word;
  }
  EXPECT_FALSE(With("packing: tRUE").status().ok());
  EXPECT_FALSE(With("packing: 1").status().ok());
}

TEST(JobFileTest, NumbersAsOtherToolsWriteThem) {
  for (const char* text :
       {"1e-4", "1.0e-4", "1.E-4", "0.0001", "1e-04", "+1e-4"}) {
    EXPECT_EQ(With(absl::StrCat("learning_rate: ", text)).spec().learning_rate,
              1e-4)
        << text;
  }
  EXPECT_EQ(With("num_epochs: 3.0").spec().num_train_epochs, 3);
}

TEST(JobFileTest, OtherNamesOfOneThing) {
  const JobFile file = Read(
      "base_model: m\ndataset: d\nadapter: lora\nlora_model_dir: a\n"
      "lora_target: q_proj, v_proj\nlr_scheduler: cosine\nstage: sft\n"
      "sequence_len: 64\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\n"
      "num_epochs: 2\nbf16: auto\ngradient_checkpointing: true\n"
      "sample_packing: True\noptimizer: adamw_torch_fused\n");
  ASSERT_TRUE(file.status().ok()) << file.status();
  const JobSpec& spec = file.spec();
  EXPECT_EQ(spec.method, TrainingMethod::kLora);
  EXPECT_EQ(spec.adapter_name_or_path, "a");
  EXPECT_EQ(spec.target_modules, 0x5u);
  EXPECT_EQ(spec.lr_scheduler_type, LrSchedulerType::kCosine);
  EXPECT_EQ(spec.batch_size, 8);
  EXPECT_EQ(spec.micro_batch_size, 2);
  EXPECT_EQ(spec.dtype, DType::kBF16);
  EXPECT_EQ(spec.gradient_checkpointing, GradientCheckpointing::kAuto);
  EXPECT_TRUE(spec.packing);
  EXPECT_TRUE(file.warnings().empty());
  for (const char* all : {"lora_target: all", "lora_target_modules: all-linear",
                          "lora_target_linear: true"}) {
    EXPECT_EQ(With(absl::StrCat("use_peft: true\n", all)).spec().target_modules,
              kAllLinear)
        << all;
  }
}

TEST(JobFileTest, OtherFieldsThatSayOneOfOurs) {
  EXPECT_EQ(With("save_strategy: no").spec().save_steps, 0);
  EXPECT_EQ(With("save_strategy: steps").spec().save_steps, 500);
  EXPECT_EQ(With("truncation_mode: keep_end").spec().truncation,
            Truncation::kLeft);
  EXPECT_EQ(With("excess_length_strategy: drop").spec().truncation,
            Truncation::kDrop);
  EXPECT_TRUE(With("neat_packing: true").spec().packing);
  EXPECT_EQ(Message(With("save_strategy: no\nsave_steps: 5")),
            "job.yaml:4: save_steps: save_strategy (line 3) says the same; "
            "keep one of them");
  EXPECT_EQ(Message(With("eval_strategy: steps\nvalidation_dataset: v")),
            "job.yaml:3: eval_strategy: steps needs eval_steps beside it, or "
            "remove this line");
  EXPECT_EQ(Message(With("eval_strategy: steps\neval_steps: 2")),
            "job.yaml:4: eval_steps: needs a validation_dataset, a "
            "validation_split or eval_prompts beside it; or remove it and "
            "eval_strategy");
  EXPECT_TRUE(With("eval_strategy: steps\nvalidation_dataset: v\neval_steps: 2")
                  .status()
                  .ok());
}

TEST(JobFileTest, OtherFieldsThatAskForWhatIsNotThere) {
  EXPECT_EQ(Message(With("load_in_4bit: True")),
            "job.yaml:3: load_in_4bit: weights of 4 or 8 bits are not "
            "available in this version; remove this line");
  EXPECT_TRUE(With("load_in_4bit: False\nneftune_noise_alpha: 0.0\n"
                   "quantization_bit: null\nlora_modules_to_save: []")
                  .status()
                  .ok());
  EXPECT_EQ(Message(Read("model: m\ndatasets:\n- path: a\n  type: alpaca")),
            "job.yaml:2: datasets: data are files under a data root; name "
            "yours in dataset instead");
}

TEST(JobFileTest, WhatMeansNothingHereIsOneWarning) {
  const JobFile file = With(
      "output_dir: out\nreport_to: [wandb]\nwandb_project:\n"
      "preprocessing_num_workers: 16\noverwrite_cache: true");
  EXPECT_TRUE(file.status().ok()) << file.status();
  ASSERT_EQ(file.warnings().size(), 1u);
  EXPECT_EQ(file.warnings()[0],
            "job.yaml: what other tools call output_dir (line 3), report_to "
            "(line 4), preprocessing_num_workers (line 6), overwrite_cache "
            "(line 7) mean nothing to this server and change no result");
  EXPECT_EQ(With("tf32: true").warnings()[0],
            "job.yaml: what other tools call tf32 (line 3) means nothing to "
            "this server and changes no result");
}

TEST(OtherFieldsTest, EachHasOneMeaningAndLeadsSomewhere) {
  std::set<std::string> names;
  for (const SpecField& field : JobSpecVocabulary()) {
    names.insert(field.name);
    names.insert(field.aliases.begin(), field.aliases.end());
  }
  const std::set<std::string> ours = names;
  for (const OtherField& field : OtherFields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_EQ(field.ignored, *field.remedy == '\0') << field.name;
    for (const OtherValue& value : field.values) {
      EXPECT_TRUE(*value.field == '\0' || ours.contains(value.field))
          << field.name;
      EXPECT_TRUE(*value.needs == '\0' || ours.contains(value.needs))
          << field.name;
    }
  }
}

TEST(OtherFieldsTest, TheDocumentNamesThemAll) {
  std::ifstream file("docs/job-spec.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const OtherField& field : OtherFields()) {
    EXPECT_TRUE(
        absl::StrContains(text.str(), absl::StrCat("`", field.name, "`")) ||
        absl::StrContains(text.str(), absl::StrCat("`", field.name, ":")))
        << field.name;
  }
}

TEST(JobFileTest, AnotherToolsRankHasAnotherAlpha) {
  EXPECT_EQ(With("method: lora\nlora_rank: 16").warnings(),
            std::vector<std::string>{
                "job.yaml: lora_alpha is not given and is 8, where "
                "LLaMA-Factory takes twice the lora_rank (line 4); say "
                "lora_alpha: 32 to have that, or lora_alpha: 8"});
  for (const char* text :
       {"method: lora\nlora_rank: 4", "method: lora\nlora_r: 16",
        "method: lora\nlora_rank: 16\nlora_alpha: 8", "method: lora",
        "method: lora\nlora_rank: many",
        "method: lora\nlora_rank: 16\nadapter_name_or_path: a"}) {
    EXPECT_TRUE(With(text).warnings().empty()) << text;
  }
}

}  // namespace
}  // namespace roundhouse
