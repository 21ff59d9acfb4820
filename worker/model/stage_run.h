// One micro-batch through one stage: forward, loss and backward of a run of
// layers, layer by layer, on tensors that lie in the memory of one device.
//
// On a GPU calls return when their work is queued on options.stream, whatever
// they are said to read or write; "during the call" is then until that work is
// done, and labels and positions are host memory that is read during the call
// itself.  Head waits for its losses.
//
// Owner: whoever computes (worker/slot, the sequential reference).  Nothing
// here knows of slots, arenas, words or transfers.  Thread-compatible: all
// calls on one thread, which has called SetComputeThreads.  LibTorch exceptions
// stop here and come back as a Status.
//
// SetPositions follows SetInput where rows pack several sequences.
//
// Forward slot:   SetInput, ForwardLayer(first..last), CopyOutput.
// Backward slot:  SetInput, ForwardLayer(first..last), BackwardFrom(grad),
//                 BackwardLayer(last..first), CopyInputGradient.
// Fused slot:     SetInput, ForwardLayer(first..L-1), Head(kLossAndGradient),
//                 BackwardLayer(L-1..first), CopyInputGradient.
// Evaluation:     SetInput, ForwardLayer(first..L-1), Head(kLossOnly).
//
// Bits do not depend on where the stage boundaries lie, nor on the recompute
// mode: a layer's forward is the same function in all of them, dropout masks
// are a function of seed, step, micro-batch and place, and a layer with experts
// that is recomputed keeps its picks.
//
// With adapters only these train: frozen weights are no leaves of autograd,
// nothing computes their gradients, and the sink never sees one.
#ifndef ROUNDHOUSE_WORKER_MODEL_STAGE_RUN_H_
#define ROUNDHOUSE_WORKER_MODEL_STAGE_RUN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "worker/device/native_stream.h"

namespace roundhouse::worker {

// Pointers to a layer's weights, indexed by ParamRole; null where the layer
// has none.  Row-major, dense, 64-byte aligned, of the run's dtype, adapters
// fp32.  The tied matrix is passed to the head as kLmHead.
struct LayerWeights {
  const void* weight[kParamRoleCount] = {};
};

// The gradient of one trainable parameter of one layer for this micro-batch.
// `fp32` is [element_count], row-major, valid during the call only.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  virtual void OnGradient(int64_t layer, ParamRole role, const float* fp32,
                          int64_t element_count) = 0;
};

enum class Keep {
  kNothing,  // no backward will follow
  kStage,    // every layer's graph is kept until its BackwardLayer
  kLayer,    // only layer inputs are kept; BackwardLayer recomputes its layer
};

enum class HeadMode { kLossOnly, kLossAndGradient };

struct StageRunOptions {
  ModelConfig config;
  AdapterConfig adapter;      // not present: the whole model trains
  DType dtype = DType::kF32;  // of the model's weights and of activations
  int64_t rows = 0;           // b
  int64_t row_tokens = 0;     // s, padded
  Keep keep = Keep::kNothing;
  int64_t head_token_chunk = 1024;  // target rows per LM-head chunk
  bool train = false;  // false: an evaluation, without the adapters' dropout
  // The key of dropout masks (dropout.h); step and micro-batch below 2^32.
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t micro_batch = 0;  // of the step
  NativeStream stream;       // where it computes, and its tensors lie
};

// What the head found.  `loss_sum` is the sum over target tokens of the
// negative log-likelihood in nats, added in row order; not scaled.
struct HeadResult {
  double loss_sum = 0;
  int64_t target_tokens = 0;
  bool finite = true;
};

class StageRun {
 public:
  static absl::StatusOr<std::unique_ptr<StageRun>> Create(
      const StageRunOptions& options);
  virtual ~StageRun() = default;

  // `input` is [rows, row_tokens, hidden] in options.dtype, 64-byte aligned;
  // read during the call or until the run ends (it must stay valid that long).
  virtual absl::Status SetInput(const void* input) = 0;

  // For rows that pack several sequences: `positions` is [rows, row_tokens]
  // int32, in host memory, each token's position in its sequence; read during
  // the call.  Every sequence attends to itself only.  Between SetInput and the
  // first ForwardLayer; without it each row is one sequence. INVALID_ARGUMENT
  // naming row and token: a row that does not begin with 0, or a value that is
  // neither 0 nor one more than the value before it.
  virtual absl::Status SetPositions(const int32_t* positions) = 0;

  // Layers in ascending order.  `weights` must stay valid until the layer's
  // BackwardLayer returned (kStage, kLayer), else for the call.
  virtual absl::Status ForwardLayer(int64_t layer,
                                    const LayerWeights& weights) = 0;

  // The experts of the next ForwardLayer's tokens, in place of those that its
  // router would pick: [rows, row_tokens, experts_per_token] in host memory,
  // ascending for each token; read during the call. FAILED_PRECONDITION before
  // SetInput, and from ForwardLayer where that layer has no experts;
  // INVALID_ARGUMENT: there is no such expert.
  virtual absl::Status SetPicks(const ExpertPick* picks) {
    return NoExperts(picks);
  }
  // Writes those of the last ForwardLayer to host memory, in that shape.
  // FAILED_PRECONDITION where that layer has no experts.  A run that computes
  // none (a test's) need not implement them: UNIMPLEMENTED.
  virtual absl::Status CopyPicks(ExpertPick* picks) { return NoExperts(picks); }

  // Writes the last layer's output, [rows, row_tokens, hidden].  Valid after
  // each ForwardLayer: it is the input of layer + 1.
  virtual absl::Status CopyOutput(void* output) = 0;

  // Final norm, LM head and loss on the current output.  `labels` is
  // [rows, row_tokens] int32 in host memory, already shifted: labels[i] is the
  // target predicted at position i, -100 where none.  With kLossAndGradient the
  // gradient of loss_sum * loss_scale goes to `sink` for kFinalNorm and
  // kLmHead, unless they are frozen, and is kept as the gradient of the last
  // layer's output.
  virtual absl::StatusOr<HeadResult> Head(const LayerWeights& weights,
                                          const int32_t* labels, HeadMode mode,
                                          double loss_scale,
                                          GradientSink* sink) = 0;

  // Sets the gradient of the last layer's output, same shape, dtype and
  // alignment; it must stay valid until the first BackwardLayer returned.
  virtual absl::Status BackwardFrom(const void* output_gradient) = 0;

  // Layers in descending order; the gradient of each trainable parameter goes
  // to `sink` once.
  virtual absl::Status BackwardLayer(int64_t layer, GradientSink* sink) = 0;

  // Writes the gradient of the stage's input, [rows, row_tokens, hidden].
  virtual absl::Status CopyInputGradient(void* output) = 0;

 private:
  static absl::Status NoExperts(const ExpertPick*) {
    return absl::UnimplementedError("this run computes no experts");
  }
};

// Fixes LibTorch's intra-op threads of the calling thread.  Part of the bits:
// the sequential reference uses the workers' count.
void SetComputeThreads(int threads);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_STAGE_RUN_H_
