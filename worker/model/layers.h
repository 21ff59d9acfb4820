// The building blocks that decoder families share, with the arithmetic and the
// roundings of Hugging Face transformers' modules.  Pure functions of tensors;
// autograd follows the caller's gradient mode.  Bits do not depend on it: every
// matrix product is of two matrices, so LibTorch never chooses another path.
#ifndef ROUNDHOUSE_WORKER_MODEL_LAYERS_H_
#define ROUNDHOUSE_WORKER_MODEL_LAYERS_H_

#include <cstdint>

#include "ATen/ATen.h"
#include "base/model/config.h"
#include "base/model/parameters.h"

namespace roundhouse::worker {

// A layer's weights, indexed by ParamRole; undefined where it has none.
struct LayerTensors {
  at::Tensor weight[kParamRoleCount];

  const at::Tensor& operator[](ParamRole role) const {
    return weight[static_cast<int>(role)];
  }
  at::Tensor& operator[](ParamRole role) {
    return weight[static_cast<int>(role)];
  }
};

// cos and sin of every position's angles, [row_tokens, head_dim], computed in
// fp32 and cast to the model's dtype.
struct RopeTables {
  at::Tensor cos;
  at::Tensor sin;
};

RopeTables MakeRopeTables(const ModelConfig& config, int64_t row_tokens,
                          at::ScalarType dtype);

// x / rms(x) in fp32, cast back, times weight.  Over the last dimension.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);

// [n, k] x [k, m], without autograd.  On a CPU, 16-bit operands are widened to
// fp32 and the result is rounded once: LibTorch's own 16-bit products are 5 to
// 40 times slower where the CPU has no instructions for them, and their bits
// depend on which it has.
at::Tensor Product(const at::Tensor& a, const at::Tensor& b);

// [n, in] x [out, in] -> [n, out], by Product in both directions.
at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight);

// x is [rows, heads, row_tokens, head_dim]; pairs are (i, i + head_dim / 2).
at::Tensor ApplyRope(const at::Tensor& x, const RopeTables& rope);

// q is [rows, heads, row_tokens, head_dim], k and v have kv_heads; causal.
// Returns [rows * row_tokens, heads * head_dim].
at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v);

// down(silu(gate(x)) * up(x)) of x [n, hidden].
at::Tensor SwiGlu(const at::Tensor& x, const LayerTensors& weights);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_LAYERS_H_
