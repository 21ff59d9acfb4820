// What kernels of our own compute in place of several of LibTorch's: RMS norm,
// rotary embedding and SwiGLU, each forward and backward, and the split of fp32
// matrices for split_products.h.  LibTorch's operators
// write each step to memory: of two byte types some 110 bytes an element of a
// norm, 50 of rotary and 28 of SwiGLU, forward and backward, where these move
// 14, 8 and 16.  Arithmetic: fused_rows.h.  Torch-free; for nvcc, too.
//
// Pointers are to dense memory of the kernels' device, elements of `dtype`
// unless they say otherwise; bits do not depend on the device's size.
#ifndef ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_KERNELS_H_
#define ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_KERNELS_H_

#include <cstdint>

#include "base/dtype.h"

namespace roundhouse::worker {

// y = x / rms(x) * weight, row by row; scales = 1 / rms(x).
struct RmsNormWork {
  DType dtype = DType::kF32;
  int64_t rows = 0, columns = 0;
  const void* x = nullptr;       // [rows, columns]
  const void* weight = nullptr;  // [columns]
  float epsilon = 0;
  void* y = nullptr;        // [rows, columns]
  float* scales = nullptr;  // [rows]
};

struct RmsNormGradientWork {
  DType dtype = DType::kF32;
  int64_t rows = 0, columns = 0;
  const void* dy = nullptr;       // [rows, columns]
  const void* x = nullptr;        // [rows, columns]
  const void* weight = nullptr;   // [columns]
  const float* scales = nullptr;  // [rows]
  void* dx = nullptr;             // [rows, columns]
  // Sums over chunks of rows, which are still to be added up:
  // [ceil(rows / chunk_rows), columns].  Null: the weight is frozen.
  float* weight_sums = nullptr;
  int64_t chunk_rows = 0;
};

// Pairs (i, i + head_dim / 2) turned by the tables' angles, or, backward, back.
struct RopeWork {
  struct Strides {
    int64_t row = 0, head = 0, token = 0;  // elements; a head's are dense
  };
  DType dtype = DType::kF32;
  int64_t rows = 0, heads = 0, tokens = 0, head_dim = 0;
  const void* x = nullptr;
  Strides x_strides;
  void* y = nullptr;
  Strides y_strides;
  const void* cos = nullptr;     // [tokens, head_dim]
  const void* sin = nullptr;     // likewise
  int64_t table_row_stride = 0;  // elements; 0: the same in every row
  bool backward = false;
};

// y = silu(gate) * up.
struct SwiGluWork {
  DType dtype = DType::kF32;
  int64_t count = 0;
  const void* gate = nullptr;
  const void* up = nullptr;
  void* y = nullptr;
};

struct SwiGluGradientWork {
  DType dtype = DType::kF32;
  int64_t count = 0;
  const void* dy = nullptr;
  const void* gate = nullptr;
  const void* up = nullptr;
  void* dgate = nullptr;
  void* dup = nullptr;
};

// bf16 numbers whose sum is x * scale, each the nearest to what those before it
// leave: part 0 is the largest, and three hold all 24 bits of an fp32 number.
// Where x * scale is beyond bf16, parts are not finite.
// y has kSlots copies of the matrix, in slot i part order[i].
struct SplitWork {
  static constexpr int kSlots = 3;
  int64_t rows = 0, columns = 0;
  const float* x = nullptr;  // [rows, columns]
  float scale = 1;
  void* y = nullptr;  // bf16
  int order[kSlots] = {0, 1, 2};
  int64_t row_stride = 0, slot_stride = 0;  // elements of y
};

// Thread-safe.  Run returns when the work is queued on the thread's current
// stream, and throws c10::Error when the device refuses it.
class FusedKernels {
 public:
  virtual ~FusedKernels() = default;
  virtual void Run(const RmsNormWork& work) const = 0;
  virtual void Run(const RmsNormGradientWork& work) const = 0;
  virtual void Run(const RopeWork& work) const = 0;
  virtual void Run(const SwiGluWork& work) const = 0;
  virtual void Run(const SwiGluGradientWork& work) const = 0;
  virtual void Run(const SplitWork& work) const = 0;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_KERNELS_H_
