#include "base/convert.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// What a 16-bit float means, straight from the format's definition.
double Meaning(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) {
    return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  }
  return sign * std::ldexp(fraction + (1 << fraction_bits),
                           exponent - bias - fraction_bits);
}

struct Format {
  DType dtype;
  int exponent_bits;
  int fraction_bits;
};

class ConvertTest : public testing::TestWithParam<Format> {
 protected:
  double Mean(uint16_t bits) const {
    return Meaning(bits, GetParam().exponent_bits, GetParam().fraction_bits);
  }
  float Widen(uint16_t bits) const {
    float value = 0;
    ToF32(GetParam().dtype, &bits, &value, 1);
    return value;
  }
  uint16_t Narrow(float value) const {
    uint16_t bits = 0;
    FromF32(GetParam().dtype, &value, &bits, 1);
    return bits;
  }
  uint16_t Infinity() const {
    return ((1 << GetParam().exponent_bits) - 1) << GetParam().fraction_bits;
  }
};

// Loops do several elements at once.
TEST_P(ConvertTest, ManyValuesWidenAndComeBackAsOneDoes) {
  std::vector<uint16_t> all(65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    all[bits] = static_cast<uint16_t>(bits);
  }
  for (const uint64_t first : {uint64_t{0}, uint64_t{3}}) {
    const uint64_t count = all.size() - first;
    std::vector<float> wide(count);
    std::vector<uint16_t> back(count);
    ToF32(GetParam().dtype, all.data() + first, wide.data(), count);
    FromF32(GetParam().dtype, wide.data(), back.data(), count);
    for (uint64_t i = 0; i < count; ++i) {
      const float one = Widen(all[first + i]);
      ASSERT_EQ(std::memcmp(&wide[i], &one, sizeof(one)), 0) << first + i;
      ASSERT_EQ(back[i], Narrow(one)) << first + i;
    }
  }
}

TEST_P(ConvertTest, EveryValueWidensExactlyAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = Widen(static_cast<uint16_t>(bits));
    const double meaning = Mean(static_cast<uint16_t>(bits));
    if (std::isnan(meaning)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(Widen(Narrow(value)))) << bits;
      EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
      EXPECT_EQ(Narrow(value), bits | 1 << (GetParam().fraction_bits - 1));
      continue;
    }
    ASSERT_EQ(value, meaning) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(Narrow(value), bits);
  }
}

TEST_P(ConvertTest, BetweenNeighboursTheNearestWinsAndATieIsEven) {
  for (uint32_t low = 0; low < Infinity(); ++low) {
    const float below = Widen(low);
    // Above the largest finite value lies the next power of two.
    const double next = low + 1 == Infinity()
                            ? 2.0 * below - Widen(low - 1)
                            : static_cast<double>(Widen(low + 1));
    const float middle = static_cast<float>((below + next) / 2);
    if (middle != (below + next) / 2) continue;  // below fp32's own grid
    const uint16_t even = low % 2 == 0 ? low : low + 1;
    ASSERT_EQ(Narrow(middle), even) << low;
    ASSERT_EQ(Narrow(-middle), even | 0x8000) << low;
    ASSERT_EQ(Narrow(std::nextafter(middle, 0.0f)), low);
    ASSERT_EQ(Narrow(std::nextafter(middle, INFINITY)), low + 1);
  }
}

TEST_P(ConvertTest, ANaNWithLowPayloadBitsOnlyStaysANaN) {
  for (uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu}) {
    EXPECT_TRUE(std::isnan(Widen(Narrow(std::bit_cast<float>(bits))))) << bits;
  }
}

TEST_P(ConvertTest, ManyAtOnceEqualsOneByOne) {
  std::vector<float> values;
  for (uint32_t i = 0; i < 10007; ++i) {
    values.push_back(std::bit_cast<float>(i * 429497u));
  }
  std::vector<uint16_t> narrow(values.size());
  FromF32(GetParam().dtype, values.data(), narrow.data(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(narrow[i], Narrow(values[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ConvertTest,
                         testing::Values(Format{DType::kBF16, 8, 7},
                                         Format{DType::kF16, 5, 10}),
                         [](const testing::TestParamInfo<Format>& info) {
                           return DTypeName(info.param.dtype);
                         });

TEST(ConvertTest, Fp32IsCopied) {
  const float values[] = {1.5f, -0.0f,
                          std::numeric_limits<float>::denorm_min()};
  float copy[3] = {};
  FromF32(DType::kF32, values, copy, 3);
  float back[3] = {};
  ToF32(DType::kF32, copy, back, 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(back[i]),
              std::bit_cast<uint32_t>(values[i]));
  }
}

}  // namespace
}  // namespace roundhouse
