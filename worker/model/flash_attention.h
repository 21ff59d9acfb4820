// Causal attention of packed or windowed sequences in one kernel a layer:
// FlashAttention-2 (arXiv 2307.08691) as LibTorch has it for GPUs, whose
// function for sequences of any length has no public name in C++.  LibTorch is
// pinned to one version; the function's declaration is checked by the compiler,
// its meaning by flash_attention_test over a kernel of its own.
#ifndef ROUNDHOUSE_WORKER_MODEL_FLASH_ATTENTION_H_
#define ROUNDHOUSE_WORKER_MODEL_FLASH_ATTENTION_H_

#include <cstdint>

#include "ATen/ATen.h"
#include "worker/model/packing.h"

namespace roundhouse::worker {

// Whether the kernel takes q: on a GPU, bf16 or fp16, head_dim a multiple of 8
// and at most 192 (above it has no backward on every GPU).
// Not for packed sequences of fewer than 64 tokens in the mean: its backward
// holds 128 rows of fp32 more for each.
bool HasFlashAttention(const at::Tensor& q, const Packing& packing);

// As CausalAttention (attention.h), shapes as there.  Deterministic as
// at::Context says; a packed sequence need not have the bits of one alone.
// REQUIRES: a kernel for q's device; packing.starts where it packs.
at::Tensor FlashAttention(const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v, const Packing& packing,
                          int64_t window);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_FLASH_ATTENTION_H_
