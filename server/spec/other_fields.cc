#include "server/spec/other_fields.h"

#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace roundhouse {
namespace {

using Kind = SpecValue::Kind;

// Where results go and who is told, how fast data are read, what trains on
// which machine: the server's business, or nobody's.
constexpr const char* kIgnored[] = {
    "activation_offloading",
    "attn_implementation",
    "average_tokens_across_devices",
    "bf16_full_eval",
    "dataloader_num_workers",
    "dataloader_persistent_workers",
    "dataloader_pin_memory",
    "dataloader_prefetch_factor",
    "dataset_num_proc",
    "dataset_prepared_path",
    "dataset_processes",
    "ddp_bucket_cap_mb",
    "ddp_find_unused_parameters",
    "ddp_timeout",
    "debug",
    "deepspeed",
    "device_map",
    "disable_tqdm",
    "do_eval",
    "enable_liger_kernel",
    "eval_batch_size",
    "eval_on_start",
    "eval_sample_packing",
    "eval_table_size",
    "flash_attention",
    "flash_attn",
    "fp16_full_eval",
    "fsdp",
    "fsdp_config",
    "gradient_checkpointing_kwargs",
    "hf_use_auth_token",
    "hub_model_id",
    "hub_private_repo",
    "hub_strategy",
    "include_num_input_tokens_seen",
    "include_tokens_per_second",
    "infer_dtype",
    "is_llama_derived_model",
    "local_rank",
    "log_level",
    "logging_dir",
    "logging_first_step",
    "logging_nan_inf_filter",
    "low_cpu_mem_usage",
    "mlflow_experiment_name",
    "mlflow_tracking_uri",
    "model_type",
    "output_dir",
    "overwrite_cache",
    "overwrite_output_dir",
    "pad_to_multiple_of",
    "pad_to_sequence_len",
    "pad_token",
    "padding_free",
    "per_device_eval_batch_size",
    "per_gpu_eval_batch_size",
    "plot_loss",
    "prediction_loss_only",
    "preprocessing_batch_size",
    "preprocessing_num_workers",
    "push_to_hub",
    "ray_num_workers",
    "ray_run_name",
    "ray_storage_path",
    "remove_unused_columns",
    "report_to",
    "resources_per_worker",
    "run_name",
    "save_on_each_node",
    "save_only_model",
    "save_safetensors",
    "sdp_attention",
    "strict",
    "swanlab_project",
    "tf32",
    "tokenizer_type",
    "torch_compile",
    "trust_remote_code",
    "use_liger_kernel",
    "use_reentrant_gc",
    "use_swanlab",
    "use_tensorboard",
    "use_unsloth",
    "use_wandb",
    "wandb_entity",
    "wandb_log_model",
    "wandb_name",
    "wandb_project",
    "wandb_run_id",
    "wandb_watch",
    "xformers_attention",
};

constexpr char kOwnTemplate[] =
    "the model's own chat template is used; remove this line (`roundhouse "
    "dataset preview` shows the text)";
constexpr char kOwnTokens[] =
    "the special tokens are those of the model's tokenizer; remove this line";
constexpr char kAssistantOnly[] =
    "the loss is on completions and on the assistant's turns; remove this line "
    "(docs/datasets.md: weight and loss of a message)";
constexpr char kOwnFile[] =
    "data are files under a data root; name yours in dataset instead";
constexpr char kNotQuantized[] =
    "weights of 4 or 8 bits are not available in this version; remove this "
    "line";
constexpr char kPlainLora[] =
    "this kind of adapter is not available in this version; remove this line";

void AddData(std::vector<OtherField>* out) {
  for (const char* name : {"chat_template", "chat_template_path", "template"}) {
    out->push_back({.name = name,
                    .values = {{"tokenizer_default"}},
                    .remedy = kOwnTemplate});
  }
  for (const char* name :
       {"eos_token", "special_tokens", "tokenizer_config",
        "tokenizer_name_or_path", "add_tokens", "add_special_tokens",
        "new_special_tokens", "resize_vocab"}) {
    out->push_back({.name = name,
                    .values = {{"false"}, {"{}"}, {"[]"}},
                    .remedy = kOwnTokens});
  }
  for (const char* name : {"assistant_only_loss", "completion_only_loss"}) {
    out->push_back(
        {.name = name, .values = {{"true"}}, .remedy = kAssistantOnly});
  }
  for (const char* name :
       {"train_on_inputs", "train_on_prompt", "mask_history"}) {
    out->push_back(
        {.name = name, .values = {{"false"}}, .remedy = kAssistantOnly});
  }
  for (const char* name : {"dataset_name", "datasets"}) {
    out->push_back({.name = name, .remedy = kOwnFile, .stands_for = "dataset"});
  }
  out->push_back({.name = "dataset_dir",
                  .remedy = "no file lists datasets here; name the data file "
                            "itself in dataset and remove this line"});
  out->push_back({.name = "dataset_text_field",
                  .values = {{"text"}},
                  .remedy = "say the field in dataset_columns: {text: NAME}"});
  out->push_back({.name = "test_datasets",
                  .values = {{"[]"}},
                  .remedy = "say the file in validation_dataset",
                  .stands_for = "validation_dataset"});
  out->push_back(
      {.name = "group_by_length",
       .values = {{"false"}},
       .remedy = "rows are shuffled by seed only; remove this line"});
  out->push_back(
      {.name = "neat_packing",
       .values = {{"true", "packing", "true"}, {"false"}},
       .remedy = "say true or false: packed sequences never see another"});
  out->push_back({.name = "excess_length_strategy",
                  .values = {{"drop", "truncation", "drop"},
                             {"truncate", "truncation", "right"}},
                  .remedy = "say drop or truncate, or truncation instead"});
  out->push_back(
      {.name = "truncation_mode",
       .values = {{"keep_start", "truncation", "right"},
                  {"keep_end", "truncation", "left"}},
       .remedy = "say keep_start or keep_end, or truncation instead"});
}

void AddMethods(std::vector<OtherField>* out) {
  out->push_back(
      {.name = "use_peft",
       .values = {{"true", "method", "lora"}, {"false", "method", "full"}},
       .remedy = "say true or false, or method instead"});
  out->push_back({.name = "do_train",
                  .values = {{"true"}},
                  .remedy = "a job trains; remove this line"});
  out->push_back({.name = "do_predict",
                  .values = {{"false"}},
                  .remedy = "a job trains; `roundhouse sample` asks a model"});
  out->push_back(
      {.name = "lora_target_linear",
       .values = {{"true", "target_modules", "all-linear"}, {"false"}},
       .remedy = "say true or false, or target_modules instead"});
  for (const char* name :
       {"load_in_4bit", "load_in_8bit", "use_bnb_nested_quant"}) {
    out->push_back(
        {.name = name, .values = {{"false"}}, .remedy = kNotQuantized});
  }
  for (const char* name : {"quantization_bit", "quantization_method",
                           "bnb_4bit_quant_type", "bnb_4bit_compute_dtype"}) {
    out->push_back({.name = name, .remedy = kNotQuantized});
  }
  for (const char* name : {"use_dora", "use_rslora", "use_badam", "use_galore",
                           "use_apollo", "pissa_init", "lora_fan_in_fan_out",
                           "peft_use_dora", "peft_use_rslora"}) {
    out->push_back({.name = name, .values = {{"false"}}, .remedy = kPlainLora});
  }
  for (const char* name :
       {"additional_target", "loraplus_lr_ratio", "lora_modules_to_save",
        "modules_to_save", "layers_to_transform", "peft_layers_to_transform"}) {
    out->push_back({.name = name, .values = {{"[]"}}, .remedy = kPlainLora});
  }
  out->push_back({.name = "lora_bias",
                  .values = {{"none"}, {"false"}},
                  .remedy = kPlainLora});
  for (const char* name : {"lora_task_type", "task_type"}) {
    out->push_back({.name = name,
                    .values = {{"CAUSAL_LM"}},
                    .remedy = "models predict the next token; remove this "
                              "line"});
  }
  out->push_back({.name = "model_revision",
                  .values = {{"main"}},
                  .remedy = "a hub id means the revision that the server's "
                            "Hugging Face cache calls main; remove this line"});
}

void AddTraining(std::vector<OtherField>* out) {
  out->push_back({.name = "neftune_noise_alpha",
                  .values = {{"0"}},
                  .remedy = "noise on embeddings is not available in this "
                            "version; remove this line"});
  out->push_back({.name = "label_smoothing_factor",
                  .values = {{"0"}},
                  .remedy = "label smoothing is not available in this version; "
                            "remove this line"});
  out->push_back({.name = "loss_type",
                  .values = {{"nll"}},
                  .remedy = "the loss is the negative log-likelihood; remove "
                            "this line"});
  for (const char* name :
       {"loss_watchdog_threshold", "loss_watchdog_patience"}) {
    out->push_back({.name = name,
                    .remedy = "a job ends early by early_stopping_patience "
                              "alone; remove this line"});
  }
  out->push_back({.name = "dataloader_drop_last",
                  .values = {{"false"}},
                  .remedy = "the last batch of an epoch is trained on though "
                            "it is small; remove this line"});
  out->push_back({.name = "auto_resume_from_checkpoints",
                  .values = {{"false"}},
                  .remedy = "a new job begins anew; name the checkpoint in "
                            "resume_from_checkpoint and remove this line"});
  out->push_back({.name = "data_seed",
                  .remedy = "one seed is for all of a job; say it in seed"});
  for (const char* name : {"eval_strategy", "evaluation_strategy"}) {
    out->push_back({.name = name,
                    .values = {{"steps", "", "", "eval_steps"}, {"no"}},
                    .remedy = "an evaluation comes every so many steps; say "
                              "how many in eval_steps and remove this line"});
  }
  out->push_back({.name = "save_strategy",
                  .values = {{"steps"}, {"no", "save_steps", "0"}},
                  .remedy = "a checkpoint comes every so many steps; say how "
                            "many in save_steps and remove this line"});
  out->push_back({.name = "logging_strategy",
                  .values = {{"steps"}},
                  .remedy = "say the steps between entries in logging_steps "
                            "and remove this line"});
  out->push_back({.name = "evals_per_epoch",
                  .values = {{"0"}},
                  .remedy = "say the optimizer steps between evaluations in "
                            "eval_steps instead"});
  out->push_back({.name = "saves_per_epoch",
                  .remedy = "say the optimizer steps between checkpoints in "
                            "save_steps instead"});
  out->push_back({.name = "metric_for_best_model",
                  .values = {{"eval_loss"}, {"loss"}},
                  .remedy = "the best model is that of the lowest eval_loss; "
                            "remove this line"});
  out->push_back({.name = "greater_is_better",
                  .values = {{"false"}},
                  .remedy = "the best model is that of the lowest eval_loss; "
                            "remove this line"});
}

// As a table writes it: booleans in small letters, [] and {} where empty.
std::string Canonical(const SpecValue& value) {
  switch (value.kind) {
    case Kind::kBool:
      return absl::AsciiStrToLower(value.text);
    case Kind::kList:
      return value.items.empty() ? "[]" : "[...]";
    case Kind::kMap:
      return value.entries.empty() ? "{}" : "{...}";
    default:
      return value.text;
  }
}

bool Same(const SpecValue& value, const char* text) {
  if (value.kind == Kind::kInteger || value.kind == Kind::kNumber) {
    double number = 0, wanted = 0;
    return absl::SimpleAtod(value.text, &number) &&
           absl::SimpleAtod(text, &wanted) && number == wanted;
  }
  return Canonical(value) == text;
}

}  // namespace

const std::vector<OtherField>& OtherFields() {
  static const auto* const fields = [] {
    auto* out = new std::vector<OtherField>;
    for (const char* name : kIgnored) {
      out->push_back({.name = name, .ignored = true});
    }
    AddData(out);
    AddMethods(out);
    AddTraining(out);
    return out;
  }();
  return *fields;
}

const OtherField* FindOtherField(const std::string& name) {
  static const auto* const by_name = [] {
    auto* map = new std::map<std::string, const OtherField*>;
    for (const OtherField& field : OtherFields()) {
      map->emplace(field.name, &field);
    }
    return map;
  }();
  const auto found = by_name->find(name);
  return found == by_name->end() ? nullptr : found->second;
}

const OtherValue* FindOtherValue(const OtherField& field,
                                 const SpecValue& value) {
  for (const OtherValue& known : field.values) {
    if (Same(value, known.text)) return &known;
  }
  return nullptr;
}

}  // namespace roundhouse
