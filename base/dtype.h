// Element types of tensors in files and in the arena.  Torch-free.
#ifndef ROUNDHOUSE_BASE_DTYPE_H_
#define ROUNDHOUSE_BASE_DTYPE_H_

#include <cstdint>

namespace roundhouse {

// Values cross process boundaries (base/wire): never renumber.
enum class DType : uint32_t { kF32 = 1, kBF16 = 2, kF16 = 3 };

constexpr uint64_t DTypeBytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : 2;
}

constexpr const char* DTypeName(DType dtype) {
  return dtype == DType::kF32    ? "fp32"
         : dtype == DType::kBF16 ? "bf16"
                                 : "fp16";
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_DTYPE_H_
