// The device memory that computing a micro-batch takes beside what its slot
// holds in buffers (weights, inputs, outputs, gradient sums): intermediate
// tensors of worker/model's layers under LibTorch's autograd, with attention
// that never has all scores at once and with fused kernels
// (worker/model/fused), as GPUs have them.  Pure.
//
// An upper bound, which worker/model/working_memory_test.cc measures against
// LibTorch's allocator.  It is of devices that multiply bf16 as such; a CPU
// that does not (worker/model/layers.h) takes fp32 copies of a product's
// operands in addition, and every CPU those of an adapter's input and sums; and
// it does not add up attention's gradients in splits, as flash attention's
// deterministic backward does on a GPU.
#ifndef ROUNDHOUSE_BASE_MODEL_WORKING_MEMORY_H_
#define ROUNDHOUSE_BASE_MODEL_WORKING_MEMORY_H_

#include <cstdint>

#include "base/dtype.h"
#include "base/model/config.h"
#include "base/model/parameters.h"

namespace roundhouse {

struct BatchShape {
  int64_t sequences = 1;
  int64_t tokens = 1;  // of one sequence
};

struct WorkingShape {
  BatchShape batch;  // of the largest micro-batch
  DType dtype = DType::kF32;
  bool backward = false;
  bool layer_recompute = false;  // else the whole stage's graph is kept
  bool packed = false;           // rows of several sequences
  int64_t head_token_chunk = 1024;
};

// While layers [first, last] run, in bytes; `last` = layer_count is the head.
// REQUIRES: 0 <= first <= last <= layer_count.
uint64_t WorkingBytes(const ModelConfig& config, const AdapterConfig& adapter,
                      const WorkingShape& shape, int64_t first, int64_t last);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_WORKING_MEMORY_H_
