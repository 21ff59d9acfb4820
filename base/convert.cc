#include "base/convert.h"

#include <cstring>

namespace roundhouse {
namespace {

// `value` / 2^shift, rounded to nearest even.  REQUIRES: 1 <= shift <= 31.
constexpr uint32_t ShiftRounded(uint32_t value, uint32_t shift) {
  const uint32_t half = uint32_t{1} << (shift - 1);
  const uint32_t odd = value >> shift & 1;
  return (value + half - 1 + odd) >> shift;
}

// All bits set or none: what a loop selects with, it can do several of at once.
constexpr uint32_t Mask(bool set) { return 0u - static_cast<uint32_t>(set); }

inline float Widened(uint16_t value) {
  const uint32_t magnitude = value & 0x7fff;
  const uint32_t fraction = magnitude & 0x3ff;
  const uint32_t subnormal = std::bit_cast<uint32_t>(
      static_cast<float>(static_cast<int32_t>(fraction)) * 0x1p-24f);
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t is_subnormal = Mask(magnitude < 0x400);
  const uint32_t is_nan = Mask(magnitude > 0x7c00);
  // Infinities and NaNs have all bits of the exponent, a NaN becomes quiet.
  const uint32_t is_special = Mask(magnitude >= 0x7c00);
  const uint32_t bits = (subnormal & is_subnormal) | (normal & ~is_subnormal) |
                        (0x7f800000 & is_special) | (0x400000 & is_nan);
  return std::bit_cast<float>(bits | uint32_t{value & 0x8000u} << 16);
}

}  // namespace

float F16ToF32(uint16_t value) { return Widened(value); }

uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half = 0;
  if (magnitude > 0x7f800000) {
    half = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= 0x477ff000) {  // 65520: rounds to infinity
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) {  // 2^-14: normal in fp16
    half = ShiftRounded(magnitude - (112u << 23), 13);
  } else if (magnitude >= 0x33000000) {  // 2^-25: half the smallest subnormal
    const uint32_t fraction = (magnitude & 0x7fffff) | 0x800000;
    half = ShiftRounded(fraction, 126 - (magnitude >> 23));
  }
  return static_cast<uint16_t>(sign | half);
}

void ToF32(DType dtype, const void* source, float* target, uint64_t count) {
  const auto* half = static_cast<const uint16_t*>(source);
  switch (dtype) {
    case DType::kF32:
      std::memcpy(target, source, count * sizeof(float));
      return;
    case DType::kBF16:
      for (uint64_t i = 0; i < count; ++i) target[i] = BF16ToF32(half[i]);
      return;
    case DType::kF16:
      for (uint64_t i = 0; i < count; ++i) target[i] = Widened(half[i]);
      return;
  }
}

void FromF32(DType dtype, const float* source, void* target, uint64_t count) {
  auto* half = static_cast<uint16_t*>(target);
  switch (dtype) {
    case DType::kF32:
      std::memcpy(target, source, count * sizeof(float));
      return;
    case DType::kBF16:
      for (uint64_t i = 0; i < count; ++i) half[i] = F32ToBF16(source[i]);
      return;
    case DType::kF16:
      for (uint64_t i = 0; i < count; ++i) half[i] = F32ToF16(source[i]);
      return;
  }
}

}  // namespace roundhouse
