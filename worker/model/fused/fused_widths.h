// Whether work is of whole packs of 16 bytes, the most that a GPU's thread
// reads at once.  For nvcc, too.
#ifndef ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_WIDTHS_H_
#define ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_WIDTHS_H_

#include <cstdint>
#include <initializer_list>

#include "worker/model/fused/fused_kernels.h"

namespace roundhouse::worker {

inline constexpr uint64_t kPackBytes = 16;

inline bool HasPacks(DType dtype, std::initializer_list<const void*> pointers,
                     std::initializer_list<int64_t> elements) {
  uint64_t all = 0;
  for (const void* pointer : pointers) {
    all |= reinterpret_cast<uint64_t>(pointer);
  }
  for (const int64_t count : elements) {
    all |= static_cast<uint64_t>(count) * DTypeBytes(dtype);
  }
  return all % kPackBytes == 0;
}

inline bool HasPacks(const RmsNormWork& work) {
  return HasPacks(work.dtype, {work.x, work.weight, work.y}, {work.columns});
}

inline bool HasPacks(const RmsNormGradientWork& work) {
  return HasPacks(work.dtype, {work.dy, work.x, work.weight, work.dx},
                  {work.columns});
}

inline bool HasPacks(const RopeWork& work) {
  const RopeWork::Strides &x = work.x_strides, &y = work.y_strides;
  return HasPacks(work.dtype, {work.x, work.y, work.cos, work.sin},
                  {work.head_dim / 2, x.row, x.head, x.token, y.row, y.head,
                   y.token, work.table_row_stride});
}

inline bool HasPacks(const SwiGluWork& work) {
  return HasPacks(work.dtype, {work.gate, work.up, work.y}, {work.count});
}

inline bool HasPacks(const SwiGluGradientWork& work) {
  return HasPacks(work.dtype,
                  {work.dy, work.gate, work.up, work.dgate, work.dup},
                  {work.count});
}

// Calls `body` with the element type (fused_rows.h), one of Elements::Fp32,
// Bf16 and Fp16, and the width in elements.  Returns what it returns.
template <class Elements, class Body>
auto WithElement(DType dtype, bool packs, Body body) {
  const auto of = [&]<class Element>(Element) {
    constexpr int kWidth = kPackBytes / sizeof(typename Element::Stored);
    return packs ? body.template operator()<Element, kWidth>()
                 : body.template operator()<Element, 1>();
  };
  if (dtype == DType::kF32) return of(typename Elements::Fp32());
  if (dtype == DType::kBF16) return of(typename Elements::Bf16());
  return of(typename Elements::Fp16());
}

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_WIDTHS_H_
