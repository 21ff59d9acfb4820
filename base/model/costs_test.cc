#include "base/model/costs.h"

#include "base/model/parameters.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

ModelConfig TinyConfig(bool tied) {
  return {.hidden_size = 48,
          .layer_count = 3,
          .head_count = 4,
          .kv_head_count = 2,
          .head_dim = 16,
          .intermediate_size = 100,
          .vocab_size = 211,
          .max_position_tokens = 512,
          .tie_word_embeddings = tied};
}

// Qwen3-32B: docs/design/planner.md gives its decoder layer as 0.9752 GB.
ModelConfig Qwen32B() {
  return {.hidden_size = 5120,
          .layer_count = 64,
          .head_count = 64,
          .kv_head_count = 8,
          .head_dim = 128,
          .intermediate_size = 25600,
          .vocab_size = 151936,
          .max_position_tokens = 40960};
}

TEST(CostsTest, ParametersAddUp) {
  for (bool tied : {false, true}) {
    const ModelConfig config = TinyConfig(tied);
    int64_t sum = 0;
    for (int64_t layer = 0; layer <= config.layer_count; ++layer) {
      sum += LayerParameterCount(config, layer);
    }
    const int64_t embedding = tied ? 0 : 211 * 48;
    EXPECT_EQ(sum + embedding, ParameterCount(config));
    EXPECT_EQ(LayerParameterCount(config, 3), 48 + 211 * 48);
  }
}

TEST(CostsTest, PublishedLayerSize) {
  EXPECT_NEAR(LayerParameterCount(Qwen32B(), 0) * 2.0 / 1e9, 0.9752, 5e-4);
}

TEST(CostsTest, WeightBytesArePadded) {
  const ModelConfig config = TinyConfig(true);
  EXPECT_EQ(LayerWeightBytes(config, 0, DType::kBF16), 23872u * 2);
  EXPECT_EQ(LayerWeightBytes(config, 0, DType::kF32), 23872u * 4);
  // The embedding's 10128 elements padded to 10176, and the norm's 48 to 64.
  EXPECT_EQ(LayerWeightBytes(config, 3, DType::kF32), (10176u + 64) * 4);
}

TEST(CostsTest, ForwardFlops) {
  const ModelConfig config = TinyConfig(false);
  const double matrices = 64 * 48 * 2 + 32 * 48 * 2 + 3 * 100 * 48;
  // One token attends to itself: two products of 4 heads of 16.
  EXPECT_EQ(LayerForwardFlops(config, 0, {1, 1}), 2 * matrices + 2 * 2 * 64);
  // 2 sequences of 3 tokens: 6 tokens and 2 * 6 pairs.
  EXPECT_EQ(LayerForwardFlops(config, 0, {2, 3}),
            2 * 6 * matrices + 2 * 2 * 12 * 64);
  EXPECT_EQ(LayerForwardFlops(config, 3, {2, 3}), 2.0 * 6 * 211 * 48);
}

TEST(CostsTest, AWindowCountsOnlyWhereItIsShorter) {
  ModelConfig config = TinyConfig(false);
  const auto flops = [&config](int64_t layer, int64_t tokens) {
    return LayerForwardFlops(config, layer, {2, tokens});
  };
  const double full = flops(0, 10);
  const double short_rows = flops(0, 4);
  config.sliding_window = 4;
  config.sliding_layers = LayersFrom(1, config.layer_count);
  EXPECT_EQ(flops(0, 10), full);
  EXPECT_EQ(flops(1, 4), short_rows);
  // 55 pairs a sequence become 1 + 2 + 3 and 7 times 4.
  EXPECT_EQ(full - flops(1, 10), 2 * (55 - 34) * 2 * 2 * 64);
}

TEST(CostsTest, BiasesAreParametersAndBytes) {
  ModelConfig config = TinyConfig(false);
  const int64_t without = LayerParameterCount(config, 0);
  const uint64_t bytes = LayerWeightBytes(config, 0, DType::kF32);
  const double flops = LayerForwardFlops(config, 0, {1, 8});
  config.query_key_value_bias = true;
  EXPECT_EQ(LayerParameterCount(config, 0), without + 64 + 32 + 32);
  EXPECT_EQ(LayerWeightBytes(config, 0, DType::kF32), bytes + 3 * 64 * 4);
  EXPECT_EQ(LayerForwardFlops(config, 0, {1, 8}), flops);
}

TEST(CostsDeathTest, BatchBeyondTheLimit) {
  EXPECT_DEATH(LayerForwardFlops(TinyConfig(true), 0, {1 << 16, 1 << 16}),
               "check failed");
  EXPECT_DEATH(LayerForwardFlops(TinyConfig(true), 0, {0, 1}), "check failed");
}

}  // namespace
}  // namespace roundhouse
