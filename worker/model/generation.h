// A model's forward pass over sequences that grow: keys and values of the
// tokens so far are kept (a KV cache), so that a step computes its new tokens
// only.  The layers are those of training (DecoderLayer), without dropout.
//
// Owner: whoever generates (worker/sample/sample_computation).  Nothing here
// knows of arenas or transfers, nor draws tokens (token_draw.h).
// Thread-compatible, as StageRun is; LibTorch exceptions stop here.
//
//   SetInput, ForwardLayer(0..L-1), Logits      // once per step
//
// A step may hold new tokens of many sequences, prompts and single tokens side
// by side, without padding: matrix products run over all of them, attention
// sequence by sequence.  A sequence's logits do not depend on the others in its
// step, up to the rounding of products of another number of rows.
#ifndef ROUNDHOUSE_WORKER_MODEL_GENERATION_H_
#define ROUNDHOUSE_WORKER_MODEL_GENERATION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "worker/model/stage_run.h"

namespace roundhouse::worker {

struct GenerationOptions {
  ModelConfig config;
  AdapterConfig adapter;
  DType dtype = DType::kF32;  // of the model's weights, states and caches
  NativeStream stream;        // where it computes, and its tensors lie
};

// What a step adds to one sequence.
struct SequenceStep {
  std::byte* cache = nullptr;  // KeyValueLayout of capacity_tokens, 64-byte
                               // aligned; written by ForwardLayer
  int64_t capacity_tokens = 0;
  int64_t cached_tokens = 0;  // positions 0 .. cached_tokens - 1 are there
  int64_t new_tokens = 0;     // at the positions that follow
};

class GenerationRun {
 public:
  static absl::StatusOr<std::unique_ptr<GenerationRun>> Create(
      const GenerationOptions& options);
  virtual ~GenerationRun() = default;

  // Begins a step.  `input` is [n, hidden] in options.dtype, 64-byte aligned:
  // the embeddings of all new tokens, sequence after sequence; it must stay
  // valid until the first ForwardLayer returned, the caches until the last.
  // INVALID_ARGUMENT naming the sequence: no new token, more than its cache
  // holds, or a position beyond the model's max_position_tokens.
  virtual absl::Status SetInput(const void* input,
                                const std::vector<SequenceStep>& steps) = 0;

  // Layers in ascending order from 0; `weights` must stay valid for the call.
  virtual absl::Status ForwardLayer(int64_t layer,
                                    const LayerWeights& weights) = 0;

  // After the last layer, when all work of the step is done: writes [count,
  // vocab] fp32 to `logits`, host memory, computed in options.dtype: those of
  // the last token of sequences first .. first + count - 1.
  virtual absl::Status Logits(const LayerWeights& weights, size_t first,
                              size_t count, float* logits) = 0;
};

// GenerationRun::Create, or a test's.
using GenerationFactory =
    std::function<absl::StatusOr<std::unique_ptr<GenerationRun>>(
        const GenerationOptions&)>;

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_GENERATION_H_
