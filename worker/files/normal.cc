#include "worker/files/normal.h"

#include <array>
#include <bit>
#include <cmath>

#include "base/log.h"
#include "base/philox.h"

namespace roundhouse::worker {
namespace {

constexpr double kLn2 = 0.693147180559945309417;
constexpr double kTwoPi = 6.283185307179586476925;

// The natural logarithm of a normal positive `x`: x = 2^e m with m between
// sqrt(1/2) and sqrt(2), ln m = 2 atanh(s) with s = (m - 1) / (m + 1) as its
// series; |s| < 0.172, so the first term left out is below 1e-19.
double Log(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffff) | 1023ull << 52);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double square = s * s;
  double series = 0.0;
  for (int n = 23; n >= 1; n -= 2) series = series * square + 1.0 / n;
  return exponent * kLn2 + 2.0 * s * series;
}

struct SineCosine {
  double sine;
  double cosine;
};

// Sine and cosine of 2 pi `turn`, 0 <= turn < 1. The nearest quarter turn is
// taken off, the Taylor series serve for the rest (at most pi/4).
SineCosine OfTurn(double turn) {
  const int quarter = static_cast<int>(4.0 * turn + 0.5);
  const double x = kTwoPi * (turn - 0.25 * quarter);
  const double square = x * x;
  double sine = 1.0;
  double cosine = 1.0;
  for (int n = 18; n >= 2; n -= 2) {
    sine = 1.0 - sine * square / (n * (n + 1));
    cosine = 1.0 - cosine * square / (n * (n - 1));
  }
  sine *= x;
  switch (quarter & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

// The upper 53 of 64 random bits as a multiple of 2^-53 in [0, 1).
double Fraction(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// The random words of elements 2 `pair` and 2 `pair` + 1.
PhiloxBlock Block(uint64_t seed, uint64_t stream, uint64_t pair) {
  const auto low = [](uint64_t v) { return static_cast<uint32_t>(v); };
  const auto high = [](uint64_t v) { return static_cast<uint32_t>(v >> 32); };
  return Philox4x32({low(pair), high(pair), low(stream), high(stream)},
                    {low(seed), high(seed)});
}

std::array<double, 2> NormalPair(uint64_t seed, uint64_t stream,
                                 uint64_t pair) {
  const PhiloxBlock r = Block(seed, stream, pair);
  const double radius =
      std::sqrt(-2.0 * Log(1.0 - Fraction(r[0], r[1])));  // Log of (0, 1]
  const SineCosine angle = OfTurn(Fraction(r[2], r[3]));
  return {radius * angle.cosine, radius * angle.sine};
}

}  // namespace

void FillNormal(uint64_t seed, uint64_t stream, uint64_t first,
                double deviation, float* values, uint64_t count) {
  ROUNDHOUSE_CHECK(first % 2 == 0);
  for (uint64_t i = 0; i < count; i += 2) {
    const std::array<double, 2> pair =
        NormalPair(seed, stream, (first + i) / 2);
    values[i] = static_cast<float>(deviation * pair[0]);
    if (i + 1 < count) values[i + 1] = static_cast<float>(deviation * pair[1]);
  }
}

void FillUniform(uint64_t seed, uint64_t stream, uint64_t first, double bound,
                 float* values, uint64_t count) {
  ROUNDHOUSE_CHECK(first % 2 == 0);
  for (uint64_t i = 0; i < count; ++i) {
    const PhiloxBlock r = Block(seed, stream, (first + i) / 2);
    const double fraction =
        i % 2 == 0 ? Fraction(r[0], r[1]) : Fraction(r[2], r[3]);
    values[i] = static_cast<float>(bound * (2 * fraction - 1));
  }
}

}  // namespace roundhouse::worker
