// The dense Qwen3 decoder layer (transformers: models/qwen3/modeling_qwen3.py).
#ifndef ROUNDHOUSE_WORKER_MODEL_QWEN3_H_
#define ROUNDHOUSE_WORKER_MODEL_QWEN3_H_

#include "ATen/ATen.h"
#include "worker/model/layers.h"

namespace roundhouse::worker {

// `x` is [rows, row_tokens, hidden]; returns the same shape.
at::Tensor Qwen3Layer(const ModelConfig& config, const RopeTables& rope,
                      const LayerTensors& weights, const at::Tensor& x);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_QWEN3_H_
