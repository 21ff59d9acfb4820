#include "worker/files/normal.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/philox.h"
#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

// Box-Muller straight from the formula with libm: within rounding of ours.
TEST(NormalTest, FollowsBoxMuller) {
  std::vector<float> values(4000);
  FillNormal(12, 34, 1000, 1.0, values.data(), values.size());
  for (uint64_t i = 0; i < values.size(); i += 2) {
    const PhiloxBlock r =
        Philox4x32({static_cast<uint32_t>((1000 + i) / 2), 0, 34, 0}, {12, 0});
    const auto fraction = [](uint64_t high, uint64_t low) {
      return std::ldexp(static_cast<double>((high << 32 | low) >> 11), -53);
    };
    const double radius = std::sqrt(-2 * std::log1p(-fraction(r[0], r[1])));
    const double angle = 2 * std::acos(-1.0) * fraction(r[2], r[3]);
    ASSERT_NEAR(values[i], radius * std::cos(angle), 1e-6) << i;
    ASSERT_NEAR(values[i + 1], radius * std::sin(angle), 1e-6) << i;
  }
}

TEST(NormalTest, HasTheMomentsOfANormal) {
  constexpr int kCount = 400000;
  std::vector<float> values(kCount);
  FillNormal(1, 2, 0, 0.02, values.data(), kCount);
  double moment[5] = {};
  int beyond_two = 0;
  for (float value : values) {
    const double x = value / 0.02;
    for (int n = 1; n <= 4; ++n) moment[n] += std::pow(x, n) / kCount;
    if (std::abs(x) > 2) ++beyond_two;
  }
  EXPECT_NEAR(moment[1], 0, 0.01);
  EXPECT_NEAR(moment[2], 1, 0.01);
  EXPECT_NEAR(moment[3], 0, 0.03);
  EXPECT_NEAR(moment[4], 3, 0.05);
  EXPECT_NEAR(beyond_two, 0.0455 * kCount, 0.002 * kCount);
}

TEST(NormalTest, AnElementDependsOnSeedStreamAndItselfOnly) {
  std::vector<float> whole(1001);
  FillNormal(5, 6, 0, 1.0, whole.data(), whole.size());
  std::vector<float> part(401);
  FillNormal(5, 6, 600, 1.0, part.data(), part.size());
  for (size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], whole[600 + i]);
  std::vector<float> other(1001);
  FillNormal(5, 7, 0, 1.0, other.data(), other.size());
  EXPECT_NE(other, whole);
  FillNormal(6, 6, 0, 1.0, other.data(), other.size());
  EXPECT_NE(other, whole);
}

// FNV-1a over the bits: a change of the generator changes every job's start.
TEST(NormalTest, GoldenBits) {
  std::vector<float> values(100000);
  FillNormal(20240229, 17, 0, 0.02, values.data(), values.size());
  uint64_t hash = 14695981039346656037u;
  for (float value : values) {
    hash = (hash ^ std::bit_cast<uint32_t>(value)) * 1099511628211u;
  }
  EXPECT_EQ(hash, 11160626078315243363u);
}

TEST(UniformTest, HasTheMomentsOfAUniformAndStaysWithinItsBound) {
  constexpr int kCount = 400000;
  std::vector<float> values(kCount);
  FillUniform(1, 2, 0, 0.25, values.data(), kCount);
  double mean = 0;
  double square = 0;
  float least = 1;
  float most = -1;
  for (float value : values) {
    mean += value / 0.25 / kCount;
    square += value / 0.25 * value / 0.25 / kCount;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  EXPECT_NEAR(mean, 0, 0.005);
  EXPECT_NEAR(square, 1.0 / 3, 0.005);
  EXPECT_GE(least, -0.25f);
  EXPECT_LE(most, 0.25f);
  EXPECT_LT(least, -0.2499f);
  EXPECT_GT(most, 0.2499f);
}

TEST(UniformTest, AnElementDependsOnSeedStreamAndItselfOnly) {
  std::vector<float> whole(1001);
  FillUniform(5, 6, 0, 1.0, whole.data(), whole.size());
  std::vector<float> part(401);
  FillUniform(5, 6, 600, 1.0, part.data(), part.size());
  for (size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], whole[600 + i]);
  std::vector<float> other(1001);
  FillUniform(5, 7, 0, 1.0, other.data(), other.size());
  EXPECT_NE(other, whole);
  FillUniform(6, 6, 0, 1.0, other.data(), other.size());
  EXPECT_NE(other, whole);
}

}  // namespace
}  // namespace roundhouse::worker
