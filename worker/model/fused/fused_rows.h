// The arithmetic of fused_kernels.h, for a GPU's threads and for a host's: all
// in fp32, rounded to the element type where Hugging Face transformers' modules
// round, so that of two byte types rotary and SwiGLU have the bits of
// LibTorch's operators (SwiGLU's as far as exp has) and norms those of another
// order of addition.  In fp32 a GPU may contract a product and a sum.
//
// Element says how numbers lie in memory:
//   using Stored; static float Widen(Stored); static Stored Narrow(float)
// Lanes says who shares a row, and adds up over them, the same for all:
//   int64_t first() const; int64_t count() const; float Sum(float) const
// kWidth elements are read and written at once: pointers and distances are
// multiples of as many.
#ifndef ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_ROWS_H_
#define ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_ROWS_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "worker/model/fused/fused_kernels.h"

#ifdef __CUDACC__
#define ROUNDHOUSE_ROW_FUNCTION __device__ inline
#else
#define ROUNDHOUSE_ROW_FUNCTION inline
#endif

namespace roundhouse::worker {

template <class Element, int kWidth>
struct alignas(sizeof(typename Element::Stored) * kWidth) Pack {
  typename Element::Stored of[kWidth];
};

template <class Element, int kWidth>
ROUNDHOUSE_ROW_FUNCTION const Pack<Element, kWidth>* Packs(const void* from,
                                                           int64_t elements) {
  return reinterpret_cast<const Pack<Element, kWidth>*>(
      static_cast<const typename Element::Stored*>(from) + elements);
}

template <class Element, int kWidth>
ROUNDHOUSE_ROW_FUNCTION Pack<Element, kWidth>* Packs(void* from,
                                                     int64_t elements) {
  return reinterpret_cast<Pack<Element, kWidth>*>(
      static_cast<typename Element::Stored*>(from) + elements);
}

// In one piece, which the compiler does not see everywhere.
template <class Element, int kWidth>
ROUNDHOUSE_ROW_FUNCTION void Store(const Pack<Element, kWidth>& pack,
                                   Pack<Element, kWidth>* to) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(pack) == sizeof(uint4)) {
    uint4 bits;
    memcpy(&bits, &pack, sizeof(bits));
    __stwb(reinterpret_cast<uint4*>(to), bits);
    return;
  }
#endif
  *to = pack;
}

// As it is after it was written to memory and read again.
template <class Element>
ROUNDHOUSE_ROW_FUNCTION float Rounded(float value) {
  return Element::Widen(Element::Narrow(value));
}

// Returns 1 / rms of the row.
template <class Element, int kWidth, class Lanes>
ROUNDHOUSE_ROW_FUNCTION float NormRow(const Lanes& lanes,
                                      const RmsNormWork& work, int64_t row) {
  const int64_t packs = work.columns / kWidth;
  const auto* const x = Packs<Element, kWidth>(work.x, row * work.columns);
  const auto* const weight = Packs<Element, kWidth>(work.weight, 0);
  auto* const y = Packs<Element, kWidth>(work.y, row * work.columns);
  float squares = 0;
  for (int64_t i = lanes.first(); i < packs; i += lanes.count()) {
    const Pack<Element, kWidth> values = x[i];
    for (int k = 0; k < kWidth; ++k) {
      const float value = Element::Widen(values.of[k]);
      squares += value * value;
    }
  }
  const float mean = lanes.Sum(squares) / static_cast<float>(work.columns);
  const float scale = 1.0f / std::sqrt(mean + work.epsilon);
  for (int64_t i = lanes.first(); i < packs; i += lanes.count()) {
    const Pack<Element, kWidth> values = x[i], weights = weight[i];
    Pack<Element, kWidth> result;
    for (int k = 0; k < kWidth; ++k) {
      const float normed =
          Rounded<Element>(Element::Widen(values.of[k]) * scale);
      result.of[k] = Element::Narrow(Element::Widen(weights.of[k]) * normed);
    }
    y[i] = result;
  }
  return scale;
}

// With g = dy * weight and s = 1 / rms(x):
// dx = s * g - x * s^3 * sum(g * x) / columns.
template <class Element, int kWidth, class Lanes>
ROUNDHOUSE_ROW_FUNCTION void NormRowGradient(const Lanes& lanes,
                                             const RmsNormGradientWork& work,
                                             int64_t row) {
  const int64_t packs = work.columns / kWidth;
  const int64_t begin = row * work.columns;
  const auto* const dy = Packs<Element, kWidth>(work.dy, begin);
  const auto* const x = Packs<Element, kWidth>(work.x, begin);
  const auto* const weight = Packs<Element, kWidth>(work.weight, 0);
  auto* const dx = Packs<Element, kWidth>(work.dx, begin);
  float along = 0;
  for (int64_t i = lanes.first(); i < packs; i += lanes.count()) {
    const Pack<Element, kWidth> gradients = dy[i], values = x[i],
                                weights = weight[i];
    for (int k = 0; k < kWidth; ++k) {
      along += Rounded<Element>(Element::Widen(gradients.of[k]) *
                                Element::Widen(weights.of[k])) *
               Element::Widen(values.of[k]);
    }
  }
  const float scale = work.scales[row];
  const float back = lanes.Sum(along) * scale * scale * scale /
                     static_cast<float>(work.columns);
  for (int64_t i = lanes.first(); i < packs; i += lanes.count()) {
    const Pack<Element, kWidth> gradients = dy[i], values = x[i],
                                weights = weight[i];
    Pack<Element, kWidth> result;
    for (int k = 0; k < kWidth; ++k) {
      const float g = Rounded<Element>(Element::Widen(gradients.of[k]) *
                                       Element::Widen(weights.of[k]));
      result.of[k] =
          Element::Narrow(g * scale - Element::Widen(values.of[k]) * back);
    }
    dx[i] = result;
  }
}

// The weight's gradient in one column over one chunk of rows.
template <class Element>
ROUNDHOUSE_ROW_FUNCTION void NormColumnGradient(const RmsNormGradientWork& work,
                                                int64_t chunk, int64_t column) {
  using Stored = typename Element::Stored;
  const auto* const dy = static_cast<const Stored*>(work.dy) + column;
  const auto* const x = static_cast<const Stored*>(work.x) + column;
  const int64_t begin = chunk * work.chunk_rows;
  const int64_t end =
      begin + work.chunk_rows < work.rows ? begin + work.chunk_rows : work.rows;
  float sum = 0;
#ifdef __CUDA_ARCH__
#pragma unroll 8
#endif
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * work.columns;
    const float normed =
        Rounded<Element>(Element::Widen(x[at]) * work.scales[row]);
    sum += Rounded<Element>(Element::Widen(dy[at]) * normed);
  }
  work.weight_sums[chunk * work.columns + column] = sum;
}

// Packs of pairs that there are.
template <int kWidth>
ROUNDHOUSE_ROW_FUNCTION int64_t RopePacks(const RopeWork& work) {
  return work.rows * work.tokens * work.heads * (work.head_dim / 2 / kWidth);
}

// The pairs of one pack; packs of a head are one after the other, then heads.
template <class Element, int kWidth>
ROUNDHOUSE_ROW_FUNCTION void TurnPairs(const RopeWork& work, int64_t pack) {
  const int64_t half = work.head_dim / 2;
  const int64_t packs = half / kWidth;
  const int64_t first = pack % packs * kWidth;
  int64_t rest = pack / packs;
  const int64_t head = rest % work.heads;
  rest /= work.heads;
  const int64_t token = rest % work.tokens, row = rest / work.tokens;
  const auto begin = [&](const RopeWork::Strides& strides) {
    return row * strides.row + head * strides.head + token * strides.token +
           first;
  };
  const int64_t from = begin(work.x_strides), to = begin(work.y_strides);
  const int64_t table =
      row * work.table_row_stride + token * work.head_dim + first;
  const auto low = *Packs<Element, kWidth>(work.x, from);
  const auto high = *Packs<Element, kWidth>(work.x, from + half);
  const auto low_cos = *Packs<Element, kWidth>(work.cos, table);
  const auto high_cos = *Packs<Element, kWidth>(work.cos, table + half);
  // Which sine meets which half: those of the result forward, those of the
  // gradient backward.
  const int64_t swap = work.backward ? half : 0;
  const float sign = work.backward ? 1.0f : -1.0f;
  const auto sin_low = *Packs<Element, kWidth>(work.sin, table + swap);
  const auto sin_high = *Packs<Element, kWidth>(work.sin, table + half - swap);
  Pack<Element, kWidth> low_result, high_result;
  for (int k = 0; k < kWidth; ++k) {
    const float a = Element::Widen(low.of[k]), b = Element::Widen(high.of[k]);
    const float to_low =
        sign * Rounded<Element>(b * Element::Widen(sin_low.of[k]));
    const float to_high =
        -sign * Rounded<Element>(a * Element::Widen(sin_high.of[k]));
    low_result.of[k] = Element::Narrow(
        Rounded<Element>(a * Element::Widen(low_cos.of[k])) + to_low);
    high_result.of[k] = Element::Narrow(
        Rounded<Element>(b * Element::Widen(high_cos.of[k])) + to_high);
  }
  Store(low_result, Packs<Element, kWidth>(work.y, to));
  Store(high_result, Packs<Element, kWidth>(work.y, to + half));
}

template <class Element, int kWidth>
ROUNDHOUSE_ROW_FUNCTION void SwiGluPack(const SwiGluWork& work, int64_t pack) {
  const auto gates = Packs<Element, kWidth>(work.gate, 0)[pack];
  const auto ups = Packs<Element, kWidth>(work.up, 0)[pack];
  Pack<Element, kWidth> result;
  for (int k = 0; k < kWidth; ++k) {
    const float gate = Element::Widen(gates.of[k]);
    const float silu = Rounded<Element>(gate / (1.0f + std::exp(-gate)));
    result.of[k] = Element::Narrow(silu * Element::Widen(ups.of[k]));
  }
  Packs<Element, kWidth>(work.y, 0)[pack] = result;
}

template <class Element, int kWidth>
ROUNDHOUSE_ROW_FUNCTION void SwiGluPackGradient(const SwiGluGradientWork& work,
                                                int64_t pack) {
  const auto dys = Packs<Element, kWidth>(work.dy, 0)[pack];
  const auto gates = Packs<Element, kWidth>(work.gate, 0)[pack];
  const auto ups = Packs<Element, kWidth>(work.up, 0)[pack];
  Pack<Element, kWidth> dgates, dups;
  for (int k = 0; k < kWidth; ++k) {
    const float dy = Element::Widen(dys.of[k]);
    const float gate = Element::Widen(gates.of[k]);
    const float sigmoid = 1.0f / (1.0f + std::exp(-gate));
    const float silu = Rounded<Element>(gate / (1.0f + std::exp(-gate)));
    const float dsilu = Rounded<Element>(dy * Element::Widen(ups.of[k]));
    dgates.of[k] =
        Element::Narrow(dsilu * sigmoid * (1.0f + gate * (1.0f - sigmoid)));
    dups.of[k] = Element::Narrow(dy * silu);
  }
  Packs<Element, kWidth>(work.dgate, 0)[pack] = dgates;
  Packs<Element, kWidth>(work.dup, 0)[pack] = dups;
}

// Element `index` of x; Element is that of bf16.
template <class Element>
ROUNDHOUSE_ROW_FUNCTION void SplitElement(const SplitWork& work,
                                          int64_t index) {
  typename Element::Stored parts[SplitWork::kSlots];
  float rest = work.x[index] * work.scale;
  for (int i = 0; i < SplitWork::kSlots; ++i) {
    parts[i] = Element::Narrow(rest);
    rest -= Element::Widen(parts[i]);
  }
  auto* const y = static_cast<typename Element::Stored*>(work.y) +
                  index / work.columns * work.row_stride + index % work.columns;
  for (int i = 0; i < SplitWork::kSlots; ++i) {
    y[i * work.slot_stride] = parts[work.order[i]];
  }
}

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_ROWS_H_
