// RMS norm, rotary embedding and SwiGLU by LibTorch's operators, in the order
// and with the roundings of Hugging Face transformers' modules: what fused.h is
// laid beside, and what computes where there are no kernels of our own.
#ifndef ROUNDHOUSE_WORKER_MODEL_FUSED_COMPOSED_H_
#define ROUNDHOUSE_WORKER_MODEL_FUSED_COMPOSED_H_

#include <utility>

#include "ATen/ATen.h"

namespace roundhouse::worker {

// x / rms(x) in fp32, cast back, times weight.  Over the last dimension.
at::Tensor ComposedRmsNorm(const at::Tensor& x, const at::Tensor& weight,
                           double epsilon);

// x is [rows, heads, tokens, head_dim]; pairs are (i, i + head_dim / 2); cos
// and sin go together with it by broadcasting.
at::Tensor ComposedRope(const at::Tensor& x, const at::Tensor& cos,
                        const at::Tensor& sin);

// silu(gate) * up.  A gate that nobody else holds is freed on the way.
at::Tensor ComposedSwiGlu(at::Tensor gate, const at::Tensor& up);

// What autograd has for gate and up of ComposedSwiGlu.
std::pair<at::Tensor, at::Tensor> ComposedSwiGluGradient(
    const at::Tensor& gradient, const at::Tensor& gate, const at::Tensor& up);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_FUSED_COMPOSED_H_
