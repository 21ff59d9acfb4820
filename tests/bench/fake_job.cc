#include "tests/bench/fake_job.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "tests/bench/model_inputs.h"

namespace roundhouse::bench {
namespace {

using nlohmann::json;

constexpr const char* kEnd = "<end>";
constexpr const char* kWord = "word";
// Heads are fewer and narrower.
constexpr int64_t kFewer = 8;
constexpr int64_t kNarrower = 4;
static_assert(kFewer * kNarrower == kShrink);

// The vocabulary of a head with bf16 weights, from its bytes.
int64_t Vocabulary(const ModelCosts& costs) {
  return std::llround(static_cast<double>(costs.head_bytes) / 2 /
                      static_cast<double>(costs.hidden * kShrink));
}

int64_t RowTokens(const ModelCosts& costs) {
  return costs.tokens / kShrink / kRows;
}

absl::Status CheckShrinks(const ModelCosts& costs) {
  struct Width {
    const char* column;
    int64_t value;
    int64_t by;
  };
  const Width widths[] = {{"hidden", costs.hidden, kShrink},
                          {"heads", costs.heads, kFewer},
                          {"kv_heads", costs.kv_heads, kFewer},
                          {"head_dim", costs.head_dim, 2 * kNarrower},
                          {"inner", costs.inner, kShrink},
                          {"tokens", costs.tokens, kShrink * kRows}};
  for (const Width& width : widths) {
    if (width.value % width.by == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(costs.name, ": ", width.column, " is ", width.value,
                     ", which ", width.by, " does not divide"));
  }
  if (costs.experts_per_token == 1 && Vocabulary(costs) >= 3) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      costs.name, ": experts_per_token is ", costs.experts_per_token,
      " and head_gb ", static_cast<double>(costs.head_bytes) * 1e-9,
      "; a dense model is wanted"));
}

absl::Status Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (file.flush()) return absl::OkStatus();
  return absl::InternalError("cannot write " + path);
}

std::string Tokenizer() {
  const json added = {{"id", 0},
                      {"content", kEnd},
                      {"special", true},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false}};
  const json tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", json::array({added})},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "Whitespace"}}},
      {"post_processor", nullptr},
      {"decoder", nullptr},
      {"model",
       {{"type", "WordLevel"},
        {"vocab", {{kEnd, 0}, {"<unknown>", 1}, {kWord, 2}}},
        {"unk_token", "<unknown>"}}}};
  return tokenizer.dump();
}

// Rows of exactly the length, one step's: every epoch is one.
std::string Rows(const FakeJobOptions& options) {
  std::string words = kWord;
  for (int64_t i = 2; i < RowTokens(options.costs); ++i) {
    absl::StrAppend(&words, " ", kWord);
  }
  std::string rows;
  for (int64_t i = 0; i < kRows * options.micro_batches; ++i) {
    absl::StrAppend(&rows, json{{"text", words}}.dump(), "\n");
  }
  return rows;
}

std::string JobFile(const FakeJobOptions& options) {
  json job = {{"model_name_or_path", "model"},
              {"model_init", "random"},
              {"dataset", "rows.jsonl"},
              {"max_steps", options.steps},
              {"batch_size", kRows * options.micro_batches},
              {"micro_batch_size", kRows},
              {"micro_batches_per_round", options.micro_batches},
              {"max_length", RowTokens(options.costs)},
              {"head_token_chunk", 1024 / kShrink},
              {"dtype", "bf16"},
              {"max_grad_norm", options.clip ? 1 : 0},
              {"save_steps", 0},
              {"gradient_groups", options.groups()},
              {"gradient_checkpointing", "stage"}};
  if (!options.daemons_plan) job["plan"] = json::parse(PlanJson(options.plan));
  return job.dump();
}

// In 10^9 bits per second, of shrunk bytes in scaled time.
double FakeGbps(double gbps, double scale) {
  return gbps * 8 / static_cast<double>(kByteShrink) / scale;
}

std::string WorkerScript(const FakeJobOptions& options) {
  return absl::StrCat(
      "#!/bin/sh\nexec \"", options.root,
      "/tests/fakes/fake_worker\" \"--costs=", options.scratch,
      "/costs.csv\" --cost-scale=", options.scale,
      " --speeds=", absl::StrJoin(options.speeds, ","),
      " --host-gbps=", FakeGbps(options.host_gbps, options.scale),
      " --copy-chunk-bytes=", kCopyChunkBytes / kByteShrink, " \"$@\"\n");
}

absl::Status WriteFiles(const FakeJobOptions& options) {
  const std::string& scratch = options.scratch;
  std::error_code error;
  std::filesystem::create_directories(scratch + "/model", error);
  std::filesystem::create_directories(scratch + "/run", error);
  ASSIGN_OR_RETURN(const std::string config, FakeConfig(options.costs));
  RETURN_IF_ERROR(Write(scratch + "/model/config.json", config));
  RETURN_IF_ERROR(Write(scratch + "/model/tokenizer.json", Tokenizer()));
  RETURN_IF_ERROR(Write(scratch + "/model/tokenizer_config.json",
                        json{{"eos_token", kEnd}}.dump()));
  RETURN_IF_ERROR(Write(scratch + "/rows.jsonl", Rows(options)));
  RETURN_IF_ERROR(Write(scratch + "/costs.csv", FakeCosts(options.costs)));
  RETURN_IF_ERROR(Write(scratch + "/worker.sh", WorkerScript(options)));
  std::filesystem::permissions(scratch + "/worker.sh",
                               std::filesystem::perms::owner_all, error);
  return Write(scratch + "/run/job.yaml", JobFile(options));
}

}  // namespace

absl::StatusOr<std::string> FakeConfig(const ModelCosts& costs) {
  RETURN_IF_ERROR(CheckShrinks(costs));
  const json config = {{"architectures", {"Qwen3ForCausalLM"}},
                       {"model_type", "qwen3"},
                       {"hidden_size", costs.hidden / kShrink},
                       {"intermediate_size", costs.inner / kShrink},
                       {"num_hidden_layers", costs.layers},
                       {"num_attention_heads", costs.heads / kFewer},
                       {"num_key_value_heads", costs.kv_heads / kFewer},
                       {"head_dim", costs.head_dim / kNarrower},
                       {"vocab_size", Vocabulary(costs)},
                       {"max_position_embeddings", 4096},
                       {"hidden_act", "silu"},
                       {"rms_norm_eps", 1e-6},
                       {"rope_theta", 10000.0},
                       {"attention_bias", false},
                       {"attention_dropout", 0.0},
                       {"initializer_range", 0.02},
                       {"tie_word_embeddings", true},
                       {"use_sliding_window", false},
                       {"eos_token_id", 0},
                       {"dtype", "bfloat16"}};
  return config.dump();
}

std::string FakeCosts(const ModelCosts& costs) {
  std::string text = "layer,forward_ms,recompute_ms,backward_ms\n";
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) * 1e-6; };
  for (int layer = 0; layer <= costs.layers; ++layer) {
    absl::StrAppend(&text, layer, ",", ms(costs.ForwardNs(layer)), ",",
                    ms(costs.RecomputeNs(layer)), ",",
                    ms(costs.BackwardNs(layer)), "\n");
  }
  return text;
}

absl::StatusOr<DaemonJob> MakeFakeJob(const FakeJobOptions& options) {
  RETURN_IF_ERROR(WriteFiles(options));
  DaemonJob job;
  job.root = options.root;
  job.run = options.scratch + "/run";
  job.flags = {
      absl::StrCat("--devices=cpu:", options.devices),
      absl::StrCat("--device-memory=", kDeviceBytes / kByteShrink),
      "--host-memory=512MiB",
      "--metrics-listen=",
      "--data-root=" + options.scratch,
      "--worker-program=" + options.scratch + "/worker.sh",
      absl::StrCat("--link-gbps=", FakeGbps(options.pcie_gbps, options.scale))};
  job.first_step = options.first_step;
  job.last_step = options.steps;
  return job;
}

}  // namespace roundhouse::bench
