#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr char kJson[] = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
  "hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 10,
  "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32
})";

std::string With(const std::string& more) {
  return absl::StrReplaceAll(
      kJson, {{"\n})", ""}, {"\"model_type\"", more + ", \"model_type\""}});
}

absl::StatusOr<ModelConfig> Parse(const std::string& json) {
  return ParseModelConfig(json, "config.json");
}

ModelConfig Good(const std::string& json) {
  const auto config = Parse(json);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig());
}

void ExpectInvalid(const std::string& json, const std::string& text) {
  const absl::Status status = Parse(json).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
}

// transformers 5.23: Qwen3MoeConfig().
TEST(ConfigMixtureTest, EveryLayerIsSparseWhereTheFileIsSilent) {
  const ModelConfig config = Good(kJson);
  EXPECT_EQ(config.architecture, Architecture::kQwen3Moe);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.mixture.expert_count, 8);
  EXPECT_EQ(config.mixture.experts_per_token, 2);
  EXPECT_EQ(config.mixture.expert_size, 32);
  EXPECT_FALSE(config.mixture.renormalize);
  EXPECT_EQ(config.mixture.layers, LayersFrom(0, 6));
  EXPECT_EQ(config.intermediate_size, 96);
}

TEST(ConfigMixtureTest, EitherSpellingOfTheCount) {
  const std::string newer = absl::StrReplaceAll(
      kJson, {{"\"num_experts\"", "\"num_local_experts\""}});
  EXPECT_TRUE(Good(newer) == Good(kJson));
  EXPECT_TRUE(Good(With(R"("num_local_experts": 8)")) == Good(kJson));
  ExpectInvalid(With(R"("num_local_experts": 16)"),
                "num_experts: 8 contradicts num_local_experts, which is 16");
}

TEST(ConfigMixtureTest, DenseLayers) {
  LayerSet layers = Good(With(R"("decoder_sparse_step": 2)")).mixture.layers;
  EXPECT_EQ(layers.to_ulong(), 0b101010u);
  layers = Good(With(R"("decoder_sparse_step": 2, "mlp_only_layers": [3, 0])"))
               .mixture.layers;
  EXPECT_EQ(layers.to_ulong(), 0b100010u);
  layers =
      Good(With(R"("mlp_only_layers": [0, 1, 2, 3, 4, 5])")).mixture.layers;
  EXPECT_TRUE(layers.none());
  EXPECT_TRUE(Good(With(R"("mlp_only_layers": null)")) == Good(kJson));
}

TEST(ConfigMixtureTest, AllLayersSlideWhereTheFlagSaysSo) {
  EXPECT_EQ(Good(With(R"("sliding_window": 5)")).sliding_window, 0);
  const ModelConfig config =
      Good(With(R"("sliding_window": 5, "use_sliding_window": true)"));
  EXPECT_EQ(config.sliding_window, 5);
  EXPECT_EQ(config.sliding_layers, LayersFrom(0, 6));
}

TEST(ConfigMixtureTest, WhatNoMixtureCanHave) {
  ExpectInvalid(absl::StrReplaceAll(kJson, {{"_tok\": 2", "_tok\": 9"}}),
                "num_experts_per_tok: 9 of 8 experts");
  ExpectInvalid(absl::StrReplaceAll(kJson, {{"\"num_experts\": 8,", ""}}),
                "num_experts: missing");
  ExpectInvalid(
      absl::StrReplaceAll(kJson, {{"_size\": 32", "_size\": 524289"}}),
      "moe_intermediate_size: 524289 is outside [1, 524288]");
  ExpectInvalid(With(R"("mlp_only_layers": [6])"),
                "mlp_only_layers: layer 6 of 6");
  ExpectInvalid(With(R"("mlp_only_layers": [-1])"),
                "mlp_only_layers: layer -1 of 6");
  ExpectInvalid(With(R"("mlp_only_layers": 2)"), "mlp_only_layers: ");
  ExpectInvalid(With(R"("mlp_only_layers": ["2"])"), "mlp_only_layers: ");
  ExpectInvalid(With(R"("decoder_sparse_step": 0)"), "decoder_sparse_step: 0");
}

// Mixtral-8x7B-v0.1's file; 46.7 billion parameters are published.
constexpr char kMixtral[] = R"({
  "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
  "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
  "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null,
  "max_position_embeddings": 32768, "rms_norm_eps": 1e-05,
  "rope_theta": 1000000.0, "output_router_logits": false,
  "router_aux_loss_coef": 0.02, "tie_word_embeddings": false})";

TEST(ConfigMixtureTest, Mixtral) {
  const ModelConfig config = Good(kMixtral);
  EXPECT_EQ(config.mixture.expert_count, 8);
  EXPECT_EQ(config.mixture.expert_size, 14336);
  EXPECT_TRUE(config.mixture.renormalize);
  EXPECT_EQ(config.mixture.layers, LayersFrom(0, 32));
  EXPECT_EQ(config.sliding_window, 0);
  EXPECT_NEAR(1e-9 * static_cast<double>(ParameterCount(config)), 46.7, 0.01);
  const UnitSpec unit = ModelUnit(config, 1);
  EXPECT_EQ(unit.parameters[6].name,
            "model.layers.0.block_sparse_moe.gate.weight");
  const std::vector<StoredTensor> stored = StoredTensors(unit);
  EXPECT_EQ(stored[7].name,
            "model.layers.0.block_sparse_moe.experts.0.w1.weight");
  EXPECT_EQ(stored[8].name,
            "model.layers.0.block_sparse_moe.experts.0.w3.weight");
  EXPECT_EQ(stored.back().name,
            "model.layers.0.block_sparse_moe.experts.7.w2.weight");
  const auto with = [](const char* from, const char* to) {
    return absl::StrReplaceAll(kMixtral, {{from, to}});
  };
  const ModelConfig windowed =
      Good(with("\"sliding_window\": null", "\"sliding_window\": 7"));
  EXPECT_EQ(windowed.sliding_layers, LayersFrom(0, 32));
  EXPECT_TRUE(Good(with("\"sliding_window\": null,", "")) == config);
  ExpectInvalid(with("\"num_local_experts\": 8,", ""),
                "num_local_experts: missing");
  const absl::Status noise =
      Parse(with("\"sliding_window\": null", "\"router_jitter_noise\": 0.1"))
          .status();
  EXPECT_EQ(noise.code(), absl::StatusCode::kUnimplemented) << noise;
}

// Qwen2-57B-A14B's file; 57.4 billion parameters are published.
constexpr char kQwen2[] = R"({
  "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
  "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
  "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 151936,
  "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 2560,
  "shared_expert_intermediate_size": 20480, "norm_topk_prob": false,
  "decoder_sparse_step": 1, "max_position_embeddings": 131072,
  "max_window_layers": 28, "sliding_window": 131072,
  "use_sliding_window": false, "output_router_logits": false,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "tie_word_embeddings": false})";

std::string Qwen2With(const char* from, const char* to) {
  return absl::StrReplaceAll(kQwen2, {{from, to}});
}

TEST(ConfigMixtureTest, Qwen2AndItsSharedExpert) {
  const ModelConfig config = Good(kQwen2);
  EXPECT_EQ(config.mixture.shared_size, 20480);
  EXPECT_EQ(config.MlpSize(3), 20480);
  EXPECT_TRUE(config.query_key_value_bias);
  EXPECT_FALSE(config.output_bias);
  EXPECT_TRUE(config.sliding_layers.none());
  EXPECT_NEAR(1e-9 * static_cast<double>(ParameterCount(config)), 57.41, 0.01);
  std::vector<std::string> names;
  const std::vector<StoredTensor> stored = StoredTensors(ModelUnit(config, 1));
  for (size_t i = stored.size() - 4; i < stored.size(); ++i) {
    names.push_back(stored[i].name);
  }
  EXPECT_THAT(names, testing::ElementsAre(
                         "model.layers.0.mlp.shared_expert.gate_proj.weight",
                         "model.layers.0.mlp.shared_expert.up_proj.weight",
                         "model.layers.0.mlp.shared_expert.down_proj.weight",
                         "model.layers.0.mlp.shared_expert_gate.weight"));
  EXPECT_EQ(stored.back().shape, (std::vector<int64_t>{1, 3584}));
}

TEST(ConfigMixtureTest, WhatQwen2MaySay) {
  EXPECT_FALSE(
      Good(Qwen2With(R"("decoder_sparse_step": 1)", R"("qkv_bias": false)"))
          .query_key_value_bias);
  const ModelConfig dense = Good(
      Qwen2With(R"("decoder_sparse_step": 1)", R"("mlp_only_layers": [2])"));
  EXPECT_EQ(dense.MlpSize(2), 18944);
  EXPECT_EQ(ModelUnit(dense, 3).parameters.back().name,
            "model.layers.2.mlp.down_proj.weight");
  const ModelConfig windowed = Good(absl::StrReplaceAll(
      kQwen2,
      {{R"("use_sliding_window": false)", R"("use_sliding_window": true)"},
       {R"("max_window_layers": 28)", R"("max_window_layers": 5)"}}));
  EXPECT_EQ(windowed.sliding_layers.to_string().substr(kMaxModelLayers - 6),
            "010101");
  EXPECT_EQ(windowed.sliding_layers.count(), 3);
  EXPECT_EQ(windowed.sliding_window, 131072);
  ExpectInvalid(Qwen2With(R"("shared_expert_intermediate_size": 20480,)", ""),
                "shared_expert_intermediate_size: missing");
}

TEST(ConfigMixtureTest, AFamilyWithoutExpertsHasNone) {
  const std::string dense = absl::StrReplaceAll(
      kJson,
      {{"Qwen3MoeForCausalLM", "Qwen3ForCausalLM"}, {"qwen3_moe", "qwen3"}});
  EXPECT_FALSE(Good(dense).mixture.present());
}

TEST(ConfigMixtureTest, ParametersOfALayer) {
  const ModelConfig config = Good(With(R"("mlp_only_layers": [1])"));
  const UnitSpec sparse = ModelUnit(config, 1);
  ASSERT_EQ(sparse.parameters.size(), 11u);
  const ParameterSpec &router = sparse.parameters[8],
                      &gate_up = sparse.parameters[9],
                      &down = sparse.parameters[10];
  EXPECT_EQ(router.name, "model.layers.0.mlp.gate.weight");
  EXPECT_EQ(router.role, ParamRole::kRouter);
  EXPECT_EQ(router.shape, (std::vector<int64_t>{8, 64}));
  EXPECT_EQ(gate_up.name, "model.layers.0.mlp.experts.gate_up_proj");
  EXPECT_EQ(gate_up.role, ParamRole::kExpertsGateUp);
  EXPECT_EQ(gate_up.shape, (std::vector<int64_t>{8, 64, 64}));
  EXPECT_EQ(down.name, "model.layers.0.mlp.experts.down_proj");
  EXPECT_EQ(down.role, ParamRole::kExpertsDown);
  EXPECT_EQ(down.shape, (std::vector<int64_t>{8, 64, 32}));
  EXPECT_TRUE(router.weight_decay && gate_up.weight_decay && down.weight_decay);
  const UnitSpec dense = ModelUnit(config, 2);
  EXPECT_EQ(dense.parameters.back().name,
            "model.layers.1.mlp.down_proj.weight");
  EXPECT_EQ(dense.parameters.back().shape, (std::vector<int64_t>{64, 96}));
}

TEST(ConfigMixtureTest, ACheckpointHasATensorAnExpertAndMatrix) {
  const UnitSpec unit = ModelUnit(Good(kJson), 1);
  const std::vector<StoredTensor> stored = StoredTensors(unit);
  ASSERT_EQ(stored.size(), 9u + 2 * 8 + 8);
  EXPECT_EQ(stored[0].name, "model.layers.0.input_layernorm.weight");
  const ParameterSpec &gate_up = unit.parameters[9],
                      &down = unit.parameters[10];
  const StoredTensor& up = stored[9 + 2 * 3 + 1];
  EXPECT_EQ(up.name, "model.layers.0.mlp.experts.3.up_proj.weight");
  EXPECT_EQ(up.shape, (std::vector<int64_t>{32, 64}));
  EXPECT_EQ(up.element_count, 32 * 64);
  EXPECT_EQ(up.unit_offset_elements,
            gate_up.unit_offset_elements + 3 * (64 * 64) + 32 * 64);
  const StoredTensor& last = stored.back();
  EXPECT_EQ(last.name, "model.layers.0.mlp.experts.7.down_proj.weight");
  EXPECT_EQ(last.shape, (std::vector<int64_t>{64, 32}));
  EXPECT_EQ(last.unit_offset_elements + last.element_count,
            down.unit_offset_elements + down.element_count);
}

}  // namespace
}  // namespace roundhouse
