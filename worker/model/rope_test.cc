#include "worker/model/rope.h"

#include <cmath>
#include <cstring>

#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

ModelConfig Config(const RopeScaling& scaling) {
  return {.head_dim = 16, .rope_theta = 10000.0, .rope_scaling = scaling};
}

void ExpectFrequencies(const RopeScaling& scaling,
                       const std::vector<float>& expected) {
  const at::Tensor found = RopeFrequencies(Config(scaling));
  ASSERT_EQ(found.numel(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found.const_data_ptr<float>()[i], expected[i]) << i;
  }
}

// Expected: inv_freq of transformers 5.23's LlamaRotaryEmbedding on torch 2.11.
TEST(RopeTest, FrequenciesHaveTheBitsOfTransformers) {
  ExpectFrequencies(
      {}, {0x1p+0f, 0x1.43d136p-2f, 0x1.99999ap-4f, 0x1.030dc6p-5f,
           0x1.47ae14p-7f, 0x1.9e7c7p-9f, 0x1.0624dep-10f, 0x1.4b96cp-12f});
  ExpectFrequencies(
      {.type = RopeType::kLinear, .factor = 3},
      {0x1.555556p-2f, 0x1.afc19ep-4f, 0x1.111112p-5f, 0x1.5967b2p-7f,
       0x1.b4e81ap-9f, 0x1.1452f6p-10f, 0x1.5d867ep-12f, 0x1.ba1e56p-14f});
  ExpectFrequencies(
      {.type = RopeType::kLlama3,
       .factor = 8,
       .low_freq_factor = 1,
       .high_freq_factor = 4,
       .original_max_position_tokens = 64},
      {0x1p+0f, 0x1.f47fe8p-3f, 0x1.ab5e6p-7f, 0x1.030dc6p-8f, 0x1.47ae14p-10f,
       0x1.9e7c7p-12f, 0x1.0624dep-13f, 0x1.4b96cp-15f});
}

TEST(RopeTest, TablesHoldEveryPositionTwice) {
  const RopeTables tables = MakeRopeTables(Config({}), 5, at::kFloat);
  ASSERT_EQ(tables.cos.sizes(), (std::vector<int64_t>{5, 16}));
  const float angle = 3 * 0x1.43d136p-2f;
  for (int64_t i : {1, 9}) {
    EXPECT_NEAR(tables.cos[3][i].item<float>(), std::cos(angle), 1e-6);
    EXPECT_NEAR(tables.sin[3][i].item<float>(), std::sin(angle), 1e-6);
  }
}

TEST(RopeTest, GatheredRowsHaveTheSameBits) {
  const RopeTables tables = MakeRopeTables(Config({}), 4, at::kBFloat16);
  const int32_t values[2][4] = {{0, 1, 0, 1}, {0, 1, 2, 3}};
  const at::Tensor positions =
      at::from_blob(const_cast<int32_t*>(&values[0][0]), {2, 4}, at::kInt);
  const RopeTables gathered = RopeAt(tables, positions);
  ASSERT_EQ(gathered.sin.sizes(), (std::vector<int64_t>{2, 1, 4, 16}));
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t token = 0; token < 4; ++token) {
      const int32_t position = values[row][token];
      EXPECT_TRUE(gathered.cos[row][0][token].equal(tables.cos[position]));
      EXPECT_TRUE(gathered.sin[row][0][token].equal(tables.sin[position]));
    }
  }
}

TEST(RopeTest, RotatesPairsOfHalves) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({1, 2, 5, 16});
  const RopeTables tables = MakeRopeTables(Config({}), 5, at::kFloat);
  const at::Tensor y = ApplyRope(x, tables);
  const auto at = [](const at::Tensor& t, int64_t i) {
    return t[0][1][4][i].item<float>();
  };
  const float angle = 4 * 0x1.99999ap-4f;
  EXPECT_NEAR(at(y, 2),
              at(x, 2) * std::cos(angle) - at(x, 10) * std::sin(angle), 1e-6);
  EXPECT_NEAR(at(y, 10),
              at(x, 10) * std::cos(angle) + at(x, 2) * std::sin(angle), 1e-6);
  EXPECT_TRUE(y.select(2, 0).equal(x.select(2, 0)));
}

}  // namespace
}  // namespace roundhouse::worker
