// Rotary position embedding (Su et al., RoFormer, arXiv 2104.09864), with the
// arithmetic of Hugging Face transformers (modeling_rope_utils.py).
#ifndef ROUNDHOUSE_WORKER_MODEL_ROPE_H_
#define ROUNDHOUSE_WORKER_MODEL_ROPE_H_

#include <cstdint>

#include "ATen/ATen.h"
#include "base/model/config.h"

namespace roundhouse::worker {

// cos and sin of every token's angles, computed in fp32 and cast to the model's
// dtype.  [row_tokens, head_dim]: the same in every row; or
// [rows, 1, row_tokens, head_dim] where a row packs several sequences.
struct RopeTables {
  at::Tensor cos;
  at::Tensor sin;
};

// Angle of one position for each pair of a head: [head_dim / 2] fp32, scaled as
// config.rope_scaling says.
at::Tensor RopeFrequencies(const ModelConfig& config);

// The tables of positions 0 .. row_tokens - 1.
RopeTables MakeRopeTables(const ModelConfig& config, int64_t row_tokens,
                          at::ScalarType dtype,
                          const at::Device& device = at::kCPU);

// The rows of `tables`, which has [row_tokens, head_dim], at `positions`,
// [rows, row_tokens] int32 on the tables' device, with values below row_tokens.
RopeTables RopeAt(const RopeTables& tables, const at::Tensor& positions);

// x is [rows, heads, row_tokens, head_dim]; pairs are (i, i + head_dim / 2).
// By a kernel of our own where the device has one (fused/fused.h).
at::Tensor ApplyRope(const at::Tensor& x, const RopeTables& rope);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_ROPE_H_
