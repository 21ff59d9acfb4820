// The building blocks of decoder layers, with the arithmetic and the roundings
// of Hugging Face transformers' modules.  Pure functions of tensors; autograd
// follows the caller's gradient mode.  Bits do not depend on it: every matrix
// product is of two matrices, so LibTorch never chooses another path.
#ifndef ROUNDHOUSE_WORKER_MODEL_LAYERS_H_
#define ROUNDHOUSE_WORKER_MODEL_LAYERS_H_

#include <cstdint>
#include <utility>

#include "ATen/ATen.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "c10/util/intrusive_ptr.h"
#include "worker/model/attention.h"
#include "worker/model/rope.h"

namespace roundhouse::worker {

struct AdapterContext;  // worker/model/lora.h
struct ExpertRows;      // worker/model/mixture.h

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

// What a decoder layer computes with beside its weights and its input.
struct LayerContext {
  const ModelConfig& config;
  int64_t layer = 0;  // 0 .. layer_count - 1
  RopeTables rope;
  const Packing& packing;
  const AdapterContext* adapter = nullptr;  // null: no adapters
  // Set where sequences go on from cached tokens; then `packing` is not looked
  // at and a single row holds the new tokens of all of them.
  const KeyValueCache* cache = nullptr;
  // In a layer with experts: which ones the tokens go to (mixture.h).  Where it
  // is null the router picks, and leaves them here if there is a place.
  c10::intrusive_ptr<ExpertRows>* experts = nullptr;
};

// x / rms(x) in fp32, cast back, times weight.  Over the last dimension.  By a
// kernel of our own where the device has one (fused/fused.h).
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);

// silu(gate) * up; likewise.  A gate that nobody else holds is freed on the
// way.
at::Tensor SwiGlu(at::Tensor gate, const at::Tensor& up);
// The gradients of gate and up from that of silu(gate) * up; without autograd.
std::pair<at::Tensor, at::Tensor> SwiGluGradient(const at::Tensor& gradient,
                                                 const at::Tensor& gate,
                                                 const at::Tensor& up);

// [n, k] x [k, m], plus `bias`, [m], where it is defined; without autograd.  On
// a CPU without bf16 instructions (AMX, AVX512_BF16), and for fp16, operands
// are widened to fp32 and the result is rounded once: LibTorch's own products
// are 5 to 40 times slower there.  With them bf16 is some 4 times as fast as
// fp32. Bits, as those of fp32 products, are one kind of CPU's.
at::Tensor Product(const at::Tensor& a, const at::Tensor& b,
                   const at::Tensor& bias = {});
// The same, a b, into `to`, which is dense.
void ProductInto(const at::Tensor& a, const at::Tensor& b, at::Tensor to);

// [n, in] x [out, in] (+ [out]) -> [n, out], by Product in both directions.
// The backward computes only the gradients that are asked for.
at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight,
                  const at::Tensor& bias = {});

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_LAYERS_H_
