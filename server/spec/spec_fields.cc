#include "server/spec/spec_fields.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/limits.h"

namespace roundhouse {
namespace {

// Which rows of the data, and what they are.
void AddRows(std::vector<SpecFieldRow>* rows) {
  using J = JobSpec;
  using F = DatasetFormat;
  std::vector<Choice<F>> formats;
  std::vector<std::string> names;
  for (const F f : {F::kAuto, F::kText, F::kPromptCompletion, F::kMessages,
                    F::kShareGpt, F::kAlpaca}) {
    formats.push_back({DatasetFormatName(f), f});
    names.push_back(DatasetFormatName(f));
  }
  rows->push_back(WhenNot(
      "auto",
      OneOf<F>(&J::dataset_format, formats, {},
               {"dataset_format", absl::StrJoin(names, ", "), "-", "auto"})));
  rows->push_back(
      ColumnsRow({"dataset_columns", "mapping", "-", "names as they are"}));
  rows->push_back(WhenNotZero(Number(&J::validation_split,
                                     {.low = 0, .high = kMaxValidationSplit},
                                     {"validation_split",
                                      "number",
                                      "share of the rows",
                                      "0",
                                      {"val_size", "val_set_size"}})));
  rows->push_back(
      WhenNotZero(Integer(&J::max_samples, {1, kMostSamples},
                          {"max_samples", "integer", "rows", "all"})));
}

void AddModelAndData(std::vector<SpecFieldRow>* rows) {
  using J = JobSpec;
  rows->push_back(
      Path(&J::model_name_or_path, {"model_name_or_path",
                                    "path",
                                    "-",
                                    "required",
                                    {"base_model", "model", "model_name"}}));
  rows->push_back(OneOf<ModelInit>(
      &J::model_init,
      {{"pretrained", ModelInit::kPretrained}, {"random", ModelInit::kRandom}},
      {}, {"model_init", "pretrained, random", "-", "pretrained"}));
  rows->push_back(Paths(&J::dataset, {"dataset",
                                      "path, or list of paths",
                                      "-",
                                      "required",
                                      {"training_file", "train_file"}}));
  rows->push_back(
      Paths(&J::validation_dataset, {"validation_dataset",
                                     "path, or list of paths",
                                     "-",
                                     "none",
                                     {"validation_file", "eval_dataset"}}));
  AddRows(rows);
  rows->push_back(Path(&J::resume_from_checkpoint,
                       {"resume_from_checkpoint", "path", "-", "none", {}}));
  constexpr const char* kPreferences = "preference training";
  rows->push_back(Only({"sft"},
                       {{"dpo", kPreferences},
                        {"ipo", kPreferences},
                        {"kto", kPreferences},
                        {"orpo", kPreferences},
                        {"simpo", kPreferences},
                        {"rm", kPreferences}},
                       {"objective", "sft", "-", "sft", {"stage", "rl"}}));
}

void AddMethod(std::vector<SpecFieldRow>* rows) {
  using J = JobSpec;
  rows->push_back(OneOf<TrainingMethod>(
      &J::method,
      {{"full", TrainingMethod::kFull}, {"lora", TrainingMethod::kLora}},
      {{"qlora", "weights of 4 bits"}},
      {"method", "full, lora", "-", "full", {"finetuning_type", "adapter"}}));
  rows->push_back(
      Path(&J::adapter_name_or_path,
           {"adapter_name_or_path", "path", "-", "none", {"lora_model_dir"}}));
  rows->push_back(IntegerOrNone(
      &J::lora_r, {1, kMaxAdapterRank},
      {"lora_r", "integer", "-", "the adapter's, or 8", {"r", "lora_rank"}}));
  rows->push_back(NumberOrNone(
      &J::lora_alpha, {.low = 0, .high = kMaxAdapterAlpha, .above_low = true},
      {"lora_alpha", "number", "-", "the adapter's, or 8"}));
  rows->push_back(NumberOrNone(
      &J::lora_dropout, {.low = 0, .high = 1, .below_high = true},
      {"lora_dropout", "number", "probability", "the adapter's, or 0"}));
  rows->push_back(TargetModulesRow({"target_modules",
                                    "list, or all-linear",
                                    "-",
                                    "the adapter's, or q_proj and v_proj",
                                    {"lora_target", "lora_target_modules"}}));
}

void AddBatches(std::vector<SpecFieldRow>* rows) {
  using J = JobSpec;
  rows->push_back(WhenNotZero(
      Number(&J::num_train_epochs, {.low = 0, .high = 10000, .above_low = true},
             {"num_train_epochs",
              "number",
              "epochs",
              "3",
              {"num_epochs", "n_epochs"}})));
  rows->push_back(StepsRow(WhenNotZero(
      Integer(&J::max_steps, {1, 1000000000},
              {"max_steps", "integer", "steps", "by num_train_epochs"}))));
  rows->push_back(Integer(&J::batch_size, {1, kMaxBatchSize},
                          {"batch_size", "integer", "sequences", "8"}));
  rows->push_back(IntegerOrAuto(&J::micro_batch_size, {1, 65536},
                                {"micro_batch_size",
                                 "integer or auto",
                                 "sequences",
                                 "auto",
                                 {"per_device_train_batch_size"}}));
  rows->push_back(AccumulationRow(
      {"gradient_accumulation_steps", "integer", "micro-batches", "none"}));
  rows->push_back(IntegerOrAuto(
      &J::micro_batches_per_round, {1, 1024},
      {"micro_batches_per_round", "integer or auto", "micro-batches", "auto"}));
  rows->push_back(
      IntegerOrAuto(&J::gradient_groups, {1, 1024},
                    {"gradient_groups", "integer or auto", "groups", "auto"}));
  rows->push_back(Integer(&J::head_token_chunk, {1, 1 << 20},
                          {"head_token_chunk", "integer", "tokens", "1024"}));
  rows->push_back(
      IntegerOrNone(&J::max_length, {1, 1 << 20},
                    {"max_length",
                     "integer",
                     "tokens",
                     "1024, or the model's if less",
                     {"sequence_len", "cutoff_len", "max_seq_length"}}));
  using T = Truncation;
  std::vector<Choice<T>> truncations;
  for (const T t : {T::kRight, T::kLeft, T::kDrop, T::kSplit}) {
    truncations.push_back({TruncationName(t), t});
  }
  rows->push_back(
      OneOf<T>(&J::truncation, truncations, {},
               {"truncation", "right, left, drop, split", "-", "right"}));
  rows->push_back(Boolean(
      &J::packing, {"packing", "boolean", "-", "false", {"sample_packing"}}));
  rows->push_back(DateRow(&J::template_date,
                          {"template_date", "date", "-", "day of submission"}));
}

void AddSchedule(std::vector<SpecFieldRow>* rows) {
  using J = JobSpec;
  using T = LrSchedulerType;
  constexpr const char* kMore = "more schedules";
  rows->push_back(Number(&J::learning_rate, {0, 10},
                         {"learning_rate", "number", "per step", "5e-05"}));
  rows->push_back(OneOf<T>(&J::lr_scheduler_type,
                           {{"linear", T::kLinear},
                            {"cosine", T::kCosine},
                            {"constant", T::kConstant},
                            {"constant_with_warmup", T::kConstantWithWarmup}},
                           {{"cosine_with_restarts", kMore},
                            {"polynomial", kMore},
                            {"inverse_sqrt", kMore},
                            {"cosine_with_min_lr", kMore},
                            {"warmup_stable_decay", kMore},
                            {"reduce_lr_on_plateau", kMore}},
                           {"lr_scheduler_type",
                            "linear, cosine, constant, constant_with_warmup",
                            "-",
                            "linear",
                            {"lr_scheduler"}}));
  rows->push_back(WhenNotZero(
      Number(&J::warmup_ratio, {0, 1},
             {"warmup_ratio", "number", "share of all steps", "0"})));
  rows->push_back(
      WhenNotZero(Integer(&J::warmup_steps, {0, 1000000000},
                          {"warmup_steps", "integer", "steps", "0"})));
}

void AddOptimizer(std::vector<SpecFieldRow>* rows) {
  using J = JobSpec;
  constexpr const char* kMore = "more optimizers";
  rows->push_back(Number(&J::weight_decay, {0, 1},
                         {"weight_decay", "number", "per step", "0"}));
  rows->push_back(
      Number(&J::max_grad_norm, {0, 1e9},
             {"max_grad_norm", "number", "norm (0: no clipping)", "1"}));
  rows->push_back(Only({"adamw", "adamw_torch", "adamw_torch_fused"},
                       {{"sgd", kMore}, {"adafactor", kMore}, {"lion", kMore}},
                       {"optim", "adamw", "-", "adamw", {"optimizer"}}));
  rows->push_back(Number(&J::adam_beta1,
                         {.low = 0, .high = 1, .below_high = true},
                         {"adam_beta1", "number", "-", "0.9"}));
  rows->push_back(Number(&J::adam_beta2,
                         {.low = 0, .high = 1, .below_high = true},
                         {"adam_beta2", "number", "-", "0.999"}));
  rows->push_back(Number(&J::adam_epsilon,
                         {.low = 0, .high = 1, .above_low = true},
                         {"adam_epsilon", "number", "-", "1e-08"}));
  rows->push_back(OneOf<OptimizerMode>(
      &J::optimizer_mode,
      {{"sync", OptimizerMode::kSync}, {"async", OptimizerMode::kAsync}}, {},
      {"optimizer_mode", "sync, async", "-", "sync"}));
}

void AddNumerics(std::vector<SpecFieldRow>* rows) {
  using J = JobSpec;
  using G = GradientCheckpointing;
  rows->push_back(DtypeRow({"dtype",
                            "auto, fp32, bf16, fp16",
                            "-",
                            "auto",
                            {"precision", "torch_dtype"}}));
  rows->push_back(
      DtypeFlagRow(&SpecDraft::bf16, {"bf16", "boolean", "-", "false"}));
  rows->push_back(
      DtypeFlagRow(&SpecDraft::fp16, {"fp16", "boolean", "-", "false"}));
  rows->push_back(Integer(&J::seed, {0, std::numeric_limits<uint32_t>::max()},
                          {"seed", "integer", "-", "42"}));
  rows->push_back(RecomputationRow(OneOf<G>(
      &J::gradient_checkpointing,
      {{"auto", G::kAuto}, {"stage", G::kStage}, {"layer", G::kLayer}}, {},
      {"gradient_checkpointing", "auto, stage, layer", "-", "auto"})));
  rows->push_back(
      SavedInputsRow({"saved_inputs", "auto, all, every N", "stages", "auto"}));
  rows->push_back(OneOfOrNone<Determinism>(
      &J::determinism,
      {{"bitwise", Determinism::kBitwise}, {"fast", Determinism::kFast}},
      {"determinism", "bitwise, fast", "-", "bitwise; fast on GPUs"}));
  rows->push_back(
      PlanRow({"plan", "auto, or stages and widths", "layers", "auto"}));
}

void AddOutputs(std::vector<SpecFieldRow>* rows) {
  using J = JobSpec;
  rows->push_back(Integer(&J::logging_steps, {1, 1000000000},
                          {"logging_steps", "integer", "steps", "1"}));
  rows->push_back(Integer(&J::save_steps, {0, 1000000000},
                          {"save_steps", "integer", "steps (0: none)", "500"}));
  rows->push_back(
      Integer(&J::save_total_limit, {0, 1000000},
              {"save_total_limit", "integer", "checkpoints (0: all)", "0"}));
  rows->push_back(
      Integer(&J::eval_steps, {0, 1000000000},
              {"eval_steps", "integer", "steps (0: first and last)", "0"}));
  rows->push_back(
      EvalPromptsRow({"eval_prompts", "list of texts", "-", "none"}));
  rows->push_back(Boolean(&J::load_best_model_at_end,
                          {"load_best_model_at_end", "boolean", "-", "false"}));
  rows->push_back(Integer(
      &J::early_stopping_patience, {0, 1000000},
      {"early_stopping_patience", "integer", "evaluations (0: off)", "0"}));
  rows->push_back(OneOf<Priority>(
      &J::priority,
      {{"normal", Priority::kNormal},
       {"urgent", Priority::kUrgent},
       {"backfill", Priority::kBackfill}},
      {}, {"priority", "normal, urgent, backfill", "-", "normal"}));
  rows->push_back(
      OutputNameRow({"output_name", "text", "-", "the job's id", {"suffix"}}));
  rows->push_back(MetadataRow({"metadata", "mapping", "-", "empty"}));
  rows->push_back(Reserved(
      "", {"resources", "reserved", "-", "none", {}, "sharing between jobs"}));
  rows->push_back(Reserved(
      "", {"max_runtime", "reserved", "-", "none", {}, "run-time limits"}));
  rows->push_back(
      Reserved("", {"retry", "reserved", "-", "none", {}, "retries"}));
}

}  // namespace

const std::vector<SpecFieldRow>& SpecFieldRows() {
  static const auto* const rows = [] {
    auto* r = new std::vector<SpecFieldRow>;
    AddModelAndData(r);
    AddMethod(r);
    AddBatches(r);
    AddSchedule(r);
    AddOptimizer(r);
    AddNumerics(r);
    AddOutputs(r);
    return r;
  }();
  return *rows;
}

}  // namespace roundhouse
