// RMS norm, rotary embedding and SwiGLU by kernels of our own, with autograd:
// what layers.h, rope.h and decoder_layer.cc compute on a device that has such
// kernels (FusedKernelsOf, on_stream.h).  Of fp32, bf16 and fp16, results in
// the dtype of `x`; first gradients only.  A backward keeps the inputs and, of
// a norm, one fp32 number a row.
//
// Errors: c10::Error, of shapes or dtypes that do not go together or a device
// that refuses.
#ifndef ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_H_
#define ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_H_

#include <utility>

#include "ATen/ATen.h"
#include "worker/model/fused/fused_kernels.h"

namespace roundhouse::worker {

// Over the last dimension; `weight` has as many elements.  The weight's
// gradient is added up in fp32, first over chunks of rows that depend on the
// shape only.
at::Tensor FusedRmsNorm(const FusedKernels& kernels, const at::Tensor& x,
                        const at::Tensor& weight, double epsilon);

// x is [rows, heads, tokens, head_dim], in any layout with dense heads; cos and
// sin, which get no gradient, are [tokens, head_dim] or [rows or 1, 1, tokens,
// head_dim].  The result, and its gradient, has tokens before heads in memory,
// as projections have.
at::Tensor FusedRope(const FusedKernels& kernels, const at::Tensor& x,
                     const at::Tensor& cos, const at::Tensor& sin);

// silu(gate) * up, both of one shape.
at::Tensor FusedSwiGlu(const FusedKernels& kernels, const at::Tensor& gate,
                       const at::Tensor& up);
// The gradients of gate and up from that of the result; without autograd.
std::pair<at::Tensor, at::Tensor> FusedSwiGluGradient(
    const FusedKernels& kernels, const at::Tensor& gradient,
    const at::Tensor& gate, const at::Tensor& up);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_H_
