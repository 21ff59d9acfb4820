#include "base/wire/model_dims.h"

#include "gtest/gtest.h"

namespace roundhouse::wire {
namespace {

TEST(ModelDims, KeepsEveryFieldThatTheComputationReads) {
  ModelConfig config;
  config.architecture = Architecture::kMistral;
  config.hidden_size = 1;
  config.layer_count = 2;
  config.head_count = 3;
  config.kv_head_count = 4;
  config.head_dim = 5;
  config.intermediate_size = 6;
  config.vocab_size = 7;
  config.max_position_tokens = 8;
  config.rope_theta = 9;
  config.rope_scaling = {RopeType::kLlama3, 10, 11, 12, 13};
  config.query_key_value_bias = true;
  config.output_bias = true;
  config.mlp_bias = true;
  config.sliding_window = 14;
  config.sliding_layers = LayersFrom(15, 100);
  config.mixture = {.expert_count = 17,
                    .experts_per_token = 18,
                    .expert_size = 19,
                    .renormalize = true,
                    .layers = LayersFrom(63, kMaxModelLayers)};
  config.rms_norm_eps = 16;
  config.tie_word_embeddings = true;
  config.dtype = DType::kBF16;
  EXPECT_EQ(ConfigOf(DimsOf(config), DType::kBF16), config);
}

TEST(ModelDims, KeepsTheAdapter) {
  const AdapterConfig adapter = {
      .rank = 8, .alpha = 16, .dropout = 0.05, .targets = 0x5b};
  EXPECT_EQ(ConfigOf(DimsOf(adapter)), adapter);
}

}  // namespace
}  // namespace roundhouse::wire
