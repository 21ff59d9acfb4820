// What a model's layers cost: parameters, bytes and FLOPs, from the
// configuration alone.  Pure functions, against which tests hold other counts.
//
// A *layer* is 0..L-1 for decoder layers and L for the head (final norm and LM
// head; the tied matrix counts, since the head uploads it).  b sequences of s
// tokens, padding included.
//
// REQUIRES everywhere: 0 <= layer <= L, b and s at least 1 and b * s at most
// kMaxMicroBatchTokens.
#ifndef ROUNDHOUSE_BASE_MODEL_COSTS_H_
#define ROUNDHOUSE_BASE_MODEL_COSTS_H_

#include <cstdint>

#include "base/dtype.h"
#include "base/model/config.h"
#include "base/model/working_memory.h"

namespace roundhouse {

// Parameters the layer reads, without padding.
int64_t LayerParameterCount(const ModelConfig& config, int64_t layer);

// Bytes a device uploads for the layer: its units, padding included.
uint64_t LayerWeightBytes(const ModelConfig& config, int64_t layer,
                          DType dtype);

// Matrix products of one forward pass, two FLOPs per multiply and add; causal
// attention counts the s (s + 1) / 2 pairs it needs, with a window w below s
// the w (w + 1) / 2 + (s - w) w.  Norms, biases, rotations and activations are
// left out.  A backward pass takes twice as many.
double LayerForwardFlops(const ModelConfig& config, int64_t layer,
                         const BatchShape& batch);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_COSTS_H_
