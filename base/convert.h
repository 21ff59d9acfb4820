// Between fp32 and the 16-bit float formats of files and compute copies.
//
// Rounding is to nearest, ties to even, whatever the machine's rounding mode;
// overflow gives infinity, fp16 subnormals are exact, a NaN stays a NaN (quiet,
// sign and leading payload bits kept).  Widening is exact.  Thread-safe; pure.
#ifndef ROUNDHOUSE_BASE_CONVERT_H_
#define ROUNDHOUSE_BASE_CONVERT_H_

#include <bit>
#include <cstdint>

#include "base/dtype.h"

namespace roundhouse {

constexpr float BF16ToF32(uint16_t value) {
  return std::bit_cast<float>(uint32_t{value} << 16);
}

constexpr uint16_t F32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t nan = (bits >> 16) | 0x40;
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan
                                                                : rounded);
}

float F16ToF32(uint16_t value);
uint16_t F32ToF16(float value);

// `count` values of `dtype` at `source` to fp32 and back.  Pointers are aligned
// for their types; the ranges do not overlap.
void ToF32(DType dtype, const void* source, float* target, uint64_t count);
void FromF32(DType dtype, const float* source, void* target, uint64_t count);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_CONVERT_H_
