#include "client/commands/job_template.h"

#include <ostream>

#include "client/tables/message_json.h"

namespace roundhouse::client {
namespace {

// Every value but the two paths is the server's default, so that a line may
// stay, go or change; every line that is commented out is valid as it is, but
// for its path (tests/integration/job_template_test.py).
constexpr char kTemplate[] =
    R"yaml(# A Roundhouse job: supervised fine-tuning of a language model.
# Fill in the two paths, then look at it and send it:
#   roundhouse submit -f job.yaml --dry-run
#   roundhouse submit -f job.yaml --wait
# docs/job-spec.md has every field with its type, unit, default and aliases.

# A Hugging Face model directory (config.json, *.safetensors, tokenizer.json)
# under one of the server's data roots, job:NAME for another job's result, or a
# hub id of the server's Hugging Face cache.  `roundhouse model list` has all.
model_name_or_path: path/to/model
# model_init: random      # the directory's config, with seeded random weights

# A JSON Lines, JSON, CSV, TSV or Parquet file, a folder of them, a pattern, or
# a list, with rows of {"text"}, {"prompt", "completion"} or {"messages"}, or
# in one of the other shapes of docs/datasets.md.
dataset: path/to/train.jsonl
# Its loss is measured before step 1 and after the last step.
# validation_dataset: path/to/validation.jsonl
# validation_split: 0.05         # or this share of the dataset
# eval_steps: 100                # and every 100 steps between
# load_best_model_at_end: true   # the result is the model of the lowest loss
# early_stopping_patience: 3     # end after 3 evaluations without a lower one
# eval_prompts: ["Hello"]        # completed when the loss is measured

# full trains every weight, lora low-rank adapters (PEFT) over frozen ones.
method: full
# lora_r: 8                      # with method: lora, as the four below
# lora_alpha: 8
# lora_dropout: 0.0
# target_modules: [q_proj, v_proj]   # or all-linear
# adapter_name_or_path: path/to/adapter   # to go on from, with its rank

# How long to train: passes over the dataset, or max_steps, but not both.
num_train_epochs: 3
# max_steps: 100

# Sequences of one optimizer step over all devices.  More devices make a step
# faster; they never change how many it sees.
batch_size: 8
micro_batch_size: auto    # sequences that a device computes at once
# max_length: 1024        # tokens; the default is less where the model's
#                         # positions are fewer.  The rest of a longer sequence
#                         # is cut off, or as truncation says
# packing: true           # several sequences share a row of max_length tokens

# The optimizer is AdamW.
learning_rate: 5.0e-5     # the peak
lr_scheduler_type: linear # linear, cosine, constant, constant_with_warmup
warmup_steps: 0
weight_decay: 0.0
max_grad_norm: 1.0        # global-norm clipping; 0 is none
adam_beta1: 0.9
adam_beta2: 0.999
adam_epsilon: 1.0e-8

dtype: auto               # of the computation: bf16 for a model in bf16 or
#                         # fp16, fp32 for one in fp32; or say fp32, bf16 or
#                         # fp16.  Master weights are always fp32
seed: 42

save_steps: 500           # steps between checkpoints; 0 is none on the way
# save_total_limit: 2     # keep the newest two; 0 is all
# resume_from_checkpoint: path/to/checkpoint-500   # or job:NAME

# output_name: my-model   # the folder of the result; else the job's id
# metadata:               # up to 16 pairs of your own
#   experiment: first
)yaml";

class JobTemplateCommand : public Command {
 public:
  const CommandInfo& info() const override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;
};

const CommandInfo& JobTemplateCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "job-template", "", "a commented job file to start from",
      "roundhouse job-template > job.yaml, fill in the two paths, submit."};
  return info;
}

ExitCode JobTemplateCommand::Run(const std::vector<std::string>&,
                                 Session* session) {
  if (session->format() == OutputFormat::kJson) {
    nlohmann::ordered_json json;
    json["text"] = kTemplate;
    session->out() << JsonText(json, 2) << "\n";
  } else {
    session->out() << kTemplate;
  }
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeJobTemplateCommand() {
  return std::make_unique<JobTemplateCommand>();
}

}  // namespace roundhouse::client
