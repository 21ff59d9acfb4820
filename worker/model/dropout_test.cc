#include "worker/model/dropout.h"

#include <bit>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

constexpr DropoutKey kKey = {0x0123456789abcdef, 12, 34};

// What the factors of a token's features are.
std::vector<float> Factors(const DropoutMask& mask, int64_t row, int64_t token,
                           int64_t features) {
  std::vector<float> values(static_cast<size_t>(features), 1.0f);
  mask.Apply(row, token, values.data(), values.data(), features);
  return values;
}

double DroppedShare(const std::vector<float>& factors) {
  double dropped = 0;
  for (float factor : factors) dropped += factor == 0 ? 1 : 0;
  return dropped / static_cast<double>(factors.size());
}

// The header's formula, number by number.
TEST(DropoutTest, FollowsItsFormula) {
  const PhiloxBlock site =
      Philox4x32({12, 34, 5, static_cast<uint32_t>(ParamRole::kUp)},
                 {0x89abcdef, 0x01234567 ^ 0x64726f70});
  const DropoutMask mask(0.3, kKey, 5, ParamRole::kUp);
  const auto factors = Factors(mask, 3, 17, 403);
  int dropped = 0;
  for (uint32_t i = 0; i < 403; ++i) {
    const uint32_t number =
        Philox4x32({i / 4, 17, 3, site[2]}, {site[0], site[1]})[i % 4];
    const bool drops = number < 1288490188u;  // 0.3 * 2^32, rounded down
    EXPECT_EQ(factors[i], drops ? 0.0f : 1.0f / 0.7f) << i;
    dropped += drops ? 1 : 0;
  }
  EXPECT_GT(dropped, 80);
}

TEST(DropoutTest, DropsTheShareItIsTold) {
  for (const double probability : {0.0, 0.05, 0.5, 0.95}) {
    const DropoutMask mask(probability, kKey, 0, ParamRole::kQ);
    const auto factors = Factors(mask, 0, 0, 400000);
    EXPECT_NEAR(DroppedShare(factors), probability, 0.004);
    double mean = 0;
    for (float factor : factors) mean += factor / 400000.0;
    EXPECT_NEAR(mean, 1.0, 0.02);
  }
}

// Two independent masks that drop half agree in half of the elements.
TEST(DropoutTest, EveryPartOfTheKeyCounts) {
  constexpr int64_t kFeatures = 40000;
  const auto of = [](const DropoutKey& key, int64_t layer, ParamRole matrix,
                     int64_t row, int64_t token) {
    return Factors(DropoutMask(0.5, key, layer, matrix), row, token, kFeatures);
  };
  const auto base = of(kKey, 1, ParamRole::kQ, 2, 3);
  const std::vector<float> others[] = {
      of({kKey.seed + 1, 12, 34}, 1, ParamRole::kQ, 2, 3),
      of({kKey.seed + (uint64_t{1} << 40), 12, 34}, 1, ParamRole::kQ, 2, 3),
      of({kKey.seed, 13, 34}, 1, ParamRole::kQ, 2, 3),
      of({kKey.seed, 12, 35}, 1, ParamRole::kQ, 2, 3),
      of({kKey.seed, 34, 12}, 1, ParamRole::kQ, 2, 3),
      of(kKey, 2, ParamRole::kQ, 2, 3),
      of(kKey, 1, ParamRole::kK, 2, 3),
      of(kKey, 1, ParamRole::kQ, 3, 3),
      of(kKey, 1, ParamRole::kQ, 2, 4),
      of(kKey, 1, ParamRole::kQ, 3, 2),
  };
  for (size_t i = 0; i < std::size(others); ++i) {
    double same = 0;
    for (size_t j = 0; j < base.size(); ++j) same += base[j] == others[i][j];
    EXPECT_NEAR(same / kFeatures, 0.5, 0.015) << i;
  }
  EXPECT_EQ(of(kKey, 1, ParamRole::kQ, 2, 3), base);
}

TEST(DropoutTest, AnElementDoesNotDependOnItsNeighbours) {
  const DropoutMask mask(0.4, kKey, 0, ParamRole::kDown);
  const auto whole = Factors(mask, 1, 2, 100);
  for (const int64_t features : {1, 3, 4, 5, 8, 63}) {
    const auto part = Factors(mask, 1, 2, features);
    EXPECT_EQ(part,
              std::vector<float>(whole.begin(), whole.begin() + features));
  }
}

TEST(DropoutTest, MultipliesWhatItIsGiven) {
  const DropoutMask mask(0.4, kKey, 0, ParamRole::kO);
  const auto factors = Factors(mask, 0, 0, 50);
  std::vector<float> from(50), to(50);
  for (int i = 0; i < 50; ++i) from[i] = 0.1f * static_cast<float>(i - 20);
  mask.Apply(0, 0, from.data(), to.data(), 50);
  for (size_t i = 0; i < 50; ++i) EXPECT_EQ(to[i], from[i] * factors[i]);
}

// FNV-1a over the bits: a change of the masks changes every such job.
TEST(DropoutTest, GoldenBits) {
  const DropoutMask mask(0.1, kKey, 7, ParamRole::kGate);
  uint64_t hash = 14695981039346656037u;
  for (int64_t token = 0; token < 20; ++token) {
    for (float factor : Factors(mask, 1, token, 1001)) {
      hash = (hash ^ std::bit_cast<uint32_t>(factor)) * 1099511628211u;
    }
  }
  EXPECT_EQ(hash, 14359606201199107749u);
}

}  // namespace
}  // namespace roundhouse::worker
