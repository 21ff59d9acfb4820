#include "worker/model/token_draw.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

int32_t Draw(const std::vector<float>& logits, double temperature,
             const DrawKey& key = {}) {
  const auto token = DrawToken(
      logits.data(), static_cast<int64_t>(logits.size()), temperature, key);
  EXPECT_TRUE(token.ok()) << token.status();
  return token.value_or(-1);
}

TEST(TokenDrawTest, GreedyTakesTheLowestOfTheLargest) {
  EXPECT_EQ(Draw({1, 3, 2, 3, -5}, 0), 1);
  EXPECT_EQ(Draw({2, 2}, 0), 0);
  EXPECT_EQ(Draw({-7}, 0), 0);
}

// Pearson's chi-square over 40,000 draws with 5 degrees of freedom: above 20.5
// once in a thousand seeds.
TEST(TokenDrawTest, DrawsFollowTheSoftmax) {
  const std::vector<float> logits = {0.5f, -1, 2, 0, 1.25f, -0.25f};
  for (double temperature : {0.5, 1.0, 3.0}) {
    double sum = 0;
    for (float logit : logits) sum += std::exp(logit / temperature);
    std::vector<double> counts(logits.size());
    constexpr uint32_t kSequences = 200, kIndices = 200;
    for (uint32_t s = 0; s < kSequences; ++s) {
      for (uint32_t i = 0; i < kIndices; ++i) {
        ++counts[static_cast<size_t>(Draw(logits, temperature, {77, s, i}))];
      }
    }
    double chi_square = 0;
    for (size_t t = 0; t < logits.size(); ++t) {
      const double expected =
          kSequences * kIndices * std::exp(logits[t] / temperature) / sum;
      chi_square += std::pow(counts[t] - expected, 2) / expected;
    }
    EXPECT_LT(chi_square, 20.5) << "temperature " << temperature;
  }
}

// Every part of the key decides.
TEST(TokenDrawTest, DrawsAreAFunctionOfTheirKey) {
  const std::vector<float> logits(1000, 0.25f);
  const DrawKey key{.seed = 5, .sequence = 2, .index = 9};
  const int32_t token = Draw(logits, 1, key);
  EXPECT_EQ(Draw(logits, 1, key), token);
  for (const DrawKey& other :
       {DrawKey{6, 2, 9}, DrawKey{5 + (uint64_t{1} << 32), 2, 9},
        DrawKey{5, 3, 9}, DrawKey{5, 2, 10}, DrawKey{5, 9, 2}}) {
    EXPECT_NE(Draw(logits, 1, other), token);
  }
}

TEST(TokenDrawTest, ExtremeTemperaturesAndLogits) {
  const std::vector<float> logits = {-3e38f, 1, 1.5f, 3e38f};
  for (uint32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(Draw(logits, 1e-300, {1, 0, i}), 3);
    EXPECT_EQ(Draw(logits, 1, {1, 0, i}), 3);
    // What has no probability is not drawn, at either end.
    EXPECT_EQ(Draw({-3e38f, 1, -3e38f}, 1, {1, 0, i}), 1);
  }
}

TEST(TokenDrawTest, ALogitThatIsNotFiniteIsNamed) {
  for (const auto& [value, text] :
       {std::pair(std::nanf(""), "token 2 is nan"),
        std::pair(std::numeric_limits<float>::infinity(), "token 2 is inf")}) {
    const float logits[] = {1, 2, value, value};
    for (double temperature : {0.0, 1.0}) {
      const auto token = DrawToken(logits, 4, temperature, {});
      EXPECT_EQ(token.status().code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_NE(std::string(token.status().message()).find(text),
                std::string::npos)
          << token.status();
    }
  }
}

}  // namespace
}  // namespace roundhouse::worker
