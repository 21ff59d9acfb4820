// Logits of given hidden states, for samples and for comparisons; training
// never has those of a whole micro-batch at once.  Thread-compatible.
#ifndef ROUNDHOUSE_WORKER_MODEL_LOGITS_H_
#define ROUNDHOUSE_WORKER_MODEL_LOGITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/model/config.h"
#include "worker/model/stage_run.h"

namespace roundhouse::worker {

// `states` is [count, hidden] in `dtype`, the last decoder layer's output;
// `weights` the head's.  Writes `logits`, [count, vocab] fp32, computed in
// `dtype`.
absl::Status ComputeLogits(const ModelConfig& config, DType dtype,
                           const void* states, int64_t count,
                           const LayerWeights& weights, float* logits);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_LOGITS_H_
