// Low-rank adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large Language
// Models", arXiv 2106.09685) with PEFT's arithmetic (peft/tuners/lora/layer.py,
// Linear.forward with fp32 adapters):
//
//   y = dtype(W x + fp32 scale * B (A dropout(fp32 x)))
//
// W x is rounded to the model's dtype first, everything of the adapter and the
// sum are fp32, and the sum is rounded once more.  In bf16 on a GPU products
// are split (fused/split_products.h): as exact, but where a result is rounded
// to bf16 at once they keep 16 bits of their factors.
#ifndef ROUNDHOUSE_WORKER_MODEL_LORA_H_
#define ROUNDHOUSE_WORKER_MODEL_LORA_H_

#include <cstdint>

#include "ATen/ATen.h"
#include "base/model/parameters.h"
#include "worker/model/dropout.h"
#include "worker/model/layers.h"

namespace roundhouse::worker {

// What the adapters of a micro-batch have in common.
struct AdapterContext {
  AdapterConfig config;
  bool dropout = false;    // config.dropout applies: a training step
  DropoutKey key;          // of the micro-batch
  int64_t row_tokens = 0;  // padded
};

// `base`, [n, out], plus the adapter of `matrix` on x, [n, in] with
// n = rows * row_tokens; where the adapter config does not target the matrix,
// `base` itself.  The backward gives gradients for base, x, A and B; it
// computes the mask again instead of keeping it.  The result may take the place
// of `base`, so nobody else needs that.  REQUIRES: context.adapter is set.
at::Tensor AddAdapter(const LayerContext& context, const LayerTensors& weights,
                      ParamRole matrix, const at::Tensor& x,
                      const at::Tensor& base);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_LORA_H_
