// The decoder layer of all families: RMS norms, rotary embedding, grouped-query
// attention and SwiGLU or a mixture of experts around two residual sums.  Where
// families and layers differ (biases, norms of query and key heads, sliding
// windows, experts), the configuration says so.
#ifndef ROUNDHOUSE_WORKER_MODEL_DECODER_LAYER_H_
#define ROUNDHOUSE_WORKER_MODEL_DECODER_LAYER_H_

#include "ATen/ATen.h"
#include "worker/model/layers.h"

namespace roundhouse::worker {

// `x` is [rows, row_tokens, hidden]; returns the same shape.  REQUIRES: the
// weights that ModelUnit lists for the layer are defined, no others.
at::Tensor DecoderLayer(const LayerContext& context,
                        const LayerTensors& weights, const at::Tensor& x);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_DECODER_LAYER_H_
