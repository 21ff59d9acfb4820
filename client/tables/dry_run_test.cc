#include "client/tables/dry_run.h"

#include <sstream>

#include "gtest/gtest.h"

namespace roundhouse::client {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

v1::JobNeeds Needs() {
  v1::JobNeeds needs;
  needs.set_host_state_bytes(512 << 20);
  needs.set_host_buffer_bytes(256 << 20);
  needs.set_host_table_bytes(256 << 20);
  needs.set_host_limit_bytes(int64_t{8} << 30);
  needs.set_device_slot_bytes(3 << 20);
  needs.set_device_limit_bytes(4 << 20);
  needs.set_checkpoint_bytes(5 << 20);
  needs.set_checkpoint_count(4);
  needs.set_export_bytes(1 << 20);
  needs.set_disk_bytes(21 << 20);
  needs.set_disk_free_bytes(99 << 20);
  needs.set_disk_path("/s\x1b");
  needs.set_parameters(1234567);
  needs.set_trainable_parameters(1234567);
  needs.set_steps(500);
  return needs;
}

nlohmann::ordered_json Spec() {
  return nlohmann::ordered_json::parse(R"({
      "model_name_or_path": "/m/tiny", "model_init": "pretrained",
      "dataset": "/d/train.jsonl", "method": "full", "batch_size": 32,
      "max_length": 256, "packing": false, "learning_rate": 5e-05,
      "lr_scheduler_type": "linear", "dtype": "bf16", "seed": 42})");
}

TEST(DryRunTextTest, TheJobAndItsNeedsInShort) {
  EXPECT_EQ(DryRunText(Spec(), Needs()),
            "model:             /m/tiny\n"
            "parameters:        1.2M, all of them trained\n"
            "method:            full\n"
            "dtype:             bf16\n"
            "dataset:           /d/train.jsonl\n"
            "  rows:            not counted yet; roundhouse dataset validate "
            "does\n"
            "validation:        none\n"
            "steps:             500 of 32 sequences\n"
            "max_length:        256\n"
            "learning rate:     5e-05, linear\n"
            "host memory:       1.0 GiB of 8.0 GiB\n"
            "  training state:  512.0 MiB\n"
            "  activations:     256.0 MiB\n"
            "  file tables:     256.0 MiB\n"
            "device memory:     3.0 MiB of 4.0 MiB for the largest slot, and "
            "its activations\n"
            "disk:              21.0 MiB of 99.0 MiB free in /s\\x1b\n"
            "  checkpoints:     4 of 5.0 MiB\n"
            "  result:          1.0 MiB\n"
            "training time:     not known: no job like it has run here yet\n");
}

TEST(DryRunTextTest, WhatItDoesWithoutForMemory) {
  v1::JobNeeds needs = Needs();
  needs.set_backward_inputs(8);
  needs.set_saved_inputs(8);
  needs.set_host_wanted_buffer_bytes(256 << 20);
  EXPECT_FALSE(Has(DryRunText(Spec(), needs), "sent ahead"));
  needs.set_saved_inputs(5);
  needs.set_host_wanted_buffer_bytes(300 << 20);
  const std::string text = DryRunText(Spec(), needs);
  for (const char* row :
       {"\n  saved inputs:    5 of 8; the others are computed again\n",
        "\n  sent ahead:      fewer slots; 300.0 MiB between stages would"}) {
    EXPECT_TRUE(Has(text, row)) << text;
  }
}

TEST(DryRunTextTest, AdaptersAndSeveralFiles) {
  nlohmann::ordered_json spec = Spec();
  spec["method"] = "lora";
  spec["lora_r"] = 8;
  spec["target_modules"] = {"q_proj", "v_proj"};
  spec["dataset"] = {"/d/a", "/d/b", "/d/c"};
  spec["validation_split"] = 0.05;
  spec["num_train_epochs"] = 3.0;
  spec["output_name"] = "x";
  spec["packing"] = true;
  spec["model_init"] = "random";
  v1::JobNeeds needs = Needs();
  needs.set_trainable_parameters(1500);
  needs.set_host_base_bytes(int64_t{1} << 30);
  needs.set_steps(0);
  const std::string text = DryRunText(spec, needs);
  for (const char* part :
       {"1.2M, trained: 1.5k\n", "lora of rank 8 at q_proj, v_proj\n",
        "/d/a and 2 more\n", "0.05 of the dataset\n",
        "3 epochs of 32 packed rows a step; counted once the data are\n",
        "\n                   read\n", "output_name:       x\n",
        "2.0 GiB of 8.0 GiB\n", "  frozen weights:  1.0 GiB\n",
        "  weights:         random, by the "}) {
    EXPECT_TRUE(Has(text, part)) << part << "\n" << text;
  }
}

TEST(DryRunTextTest, TheTimeIsThatOfAnEarlierJobOrNotKnown) {
  v1::JobNeeds needs = Needs();
  needs.set_step_seconds(0.25);
  needs.set_measured_in("projects/default/fineTuningJobs/job-3");
  EXPECT_TRUE(Has(DryRunText(Spec(), needs),
                  "2:05 for 500 steps (0.25 s a step, measured in job-3)\n"))
      << DryRunText(Spec(), needs);
  needs.set_steps(0);
  EXPECT_TRUE(Has(DryRunText(Spec(), needs),
                  "0.25 s a step, measured in job-3; steps are known once"))
      << DryRunText(Spec(), needs);
}

// The client says beside this that all rows were read and checked.
TEST(DryRunTextTest, RowsThatWereAllReadAreCounted) {
  nlohmann::ordered_json spec = Spec();
  spec["num_train_epochs"] = 1.0;
  spec["truncation"] = "right";
  v1::JobNeeds needs = Needs();
  needs.set_steps(0);
  needs.set_dataset_rows(200);
  needs.set_step_seconds(0.5);
  needs.set_measured_in("jobs/job-3");
  std::string text = DryRunText(spec, needs);
  EXPECT_FALSE(Has(text, "not counted")) << text;
  for (const char* part :
       {"  rows:            200; roundhouse dataset validate counts tokens\n",
        "steps:             at most 7 of 32 sequences (1 epoch)\n",
        "at most 0:03 for 7 steps (0.5 s a step, measured in job-3)\n"}) {
    EXPECT_TRUE(Has(text, part)) << part << "\n" << text;
  }
  spec["num_train_epochs"] = 1.5;
  spec["batch_size"] = 1;
  EXPECT_TRUE(
      Has(DryRunText(spec, needs), "at most 300 of 1 sequence (1.5 epochs)\n"));
  spec["num_train_epochs"] = 0.001;
  EXPECT_TRUE(Has(DryRunText(spec, needs), " for 1 step ("));
  // One row of text may become several.
  spec["truncation"] = "split";
  text = DryRunText(spec, needs);
  EXPECT_TRUE(Has(text, "  rows:            200;")) << text;
  EXPECT_FALSE(Has(text, "at most")) << text;
  needs.set_steps(8);
  EXPECT_TRUE(Has(DryRunText(spec, needs), "steps:             8 of 1 sequ"));
}

TEST(DryRunTextTest, NoSpecMakesTheStepsWrong) {
  v1::JobNeeds needs = Needs();
  needs.set_steps(0);
  needs.set_dataset_rows(int64_t{1} << 62);
  nlohmann::ordered_json spec = Spec();
  for (const nlohmann::ordered_json& epochs :
       {nlohmann::ordered_json("3"), nlohmann::ordered_json(1e300),
        nlohmann::ordered_json(-1), nlohmann::ordered_json(nullptr)}) {
    spec["num_train_epochs"] = epochs;
    EXPECT_FALSE(Has(DryRunText(spec, needs), "at most")) << epochs;
  }
  spec["num_train_epochs"] = 1;
  spec["batch_size"] = 0;
  EXPECT_FALSE(Has(DryRunText(spec, needs), "at most"));
}

void ExpectShortLines(const nlohmann::ordered_json& spec,
                      const v1::JobNeeds& needs) {
  std::istringstream lines(DryRunText(spec, needs));
  std::string line;
  while (std::getline(lines, line)) EXPECT_LE(line.size(), 80u) << line;
}

// No line that a terminal of 80 columns breaks, but for long names.
TEST(DryRunTextTest, LinesAreShort) {
  nlohmann::ordered_json spec = Spec();
  v1::JobNeeds needs = Needs();
  ExpectShortLines(spec, needs);
  spec["method"] = "lora";
  spec["lora_r"] = 64;
  spec["target_modules"] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                            "gate_proj", "up_proj", "down_proj"};
  spec["packing"] = true;
  spec["num_train_epochs"] = 3.25;
  spec["batch_size"] = 1000000;
  spec["lr_scheduler_type"] = "cosine_with_min_lr_and_warmup_and_more";
  needs.set_steps(0);
  needs.set_step_seconds(0.123);
  needs.set_measured_in("jobs/job-1234567");
  ExpectShortLines(spec, needs);
  needs.set_dataset_rows(int64_t{1} << 40);
  ExpectShortLines(spec, needs);
  // A name is not broken.
  spec["dataset"] = "/d/" + std::string(90, 'a') + " b";
  EXPECT_TRUE(Has(DryRunText(spec, needs), "a b\n"));
}

}  // namespace
}  // namespace roundhouse::client
