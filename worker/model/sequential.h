// The sequential reference: a plain training loop in one process, over tensors
// in its own memory, that knows of no slot, stage, arena, transfer, host
// operation or dispatcher.  A pipelined run equals it bit for bit.
//
// One step: every micro-batch in order through the whole model, forward and
// backward; gradients add in the job's order (base/reduction.h):
//   inside a group    in micro-batch order
//   groups of a round up the fixed tree
//   rounds            in order
// all in fp32, the first addend copied.  An embedding row's addends are the
// stage-0 input gradients (cast to fp32) of its tokens, padding included, in
// (micro-batch, row, position) order within a group; a row without addends is
// the identity: the other operand is copied.  A tied matrix adds its two uses
// once per round, the embedding's first; a row the embedding did not use has
// the head's value.  Rows never used have gradient 0.
//
// Then the norm (units, parameters, chunks in order), clipping, AdamW on fp32
// masters in chunks of kReduceChunkElements, and the compute copies.
//
// With scale_loss the loss's gradient is multiplied by a loss scale
// (base/loss_scaler.h), the norm divided by it, the clip factor too; a step
// whose gradients are not finite updates nothing.
//
// With contribution_dtype the sums that leave the devices under some plan are
// rounded to it, of each unit those of the groups that contributed_groups
// names; what the host makes of them stays fp32.  An untied embedding's rows
// are no such sums, nor is a tied one's use of its rows.
//
// With adapters the model's own units are frozen: they have compute weights
// only, no gradient, and no part in the norm.
//
// Thread-compatible: all calls on one thread.
#ifndef ROUNDHOUSE_WORKER_MODEL_SEQUENTIAL_H_
#define ROUNDHOUSE_WORKER_MODEL_SEQUENTIAL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/loss_scaler.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "base/reduction.h"
#include "worker/model/adamw.h"
#include "worker/model/aligned.h"
#include "worker/model/sequential_gradient.h"
#include "worker/model/stage_run.h"

namespace roundhouse::worker {

struct SequentialOptions {
  ModelConfig config;
  AdapterConfig adapter;      // not present: the whole model trains
  uint64_t seed = 0;          // of dropout masks
  DType dtype = DType::kF32;  // of the model's compute copies and activations
  Keep keep = Keep::kStage;   // no effect on bits
  int threads = 1;            // LibTorch's, of the calling thread
  int64_t round_limit = 1;    // M, micro-batches
  int64_t group_limit = 1;    // G, groups
  int64_t head_token_chunk = 1024;  // target rows
  AdamWOptions adamw;
  double max_gradient_norm = 0;  // 0: no clipping
  bool scale_loss = false;
  // A step's gradients are those of the weights that the update before the last
  // one left, of the first two steps those of the initial ones.
  bool stale = false;
  // Not fp32: contributed_groups is needed, and there are no adapters.
  DType contribution_dtype = DType::kF32;
  // The subtrees of groups whose sums leave a device, of a layer (L: the head)
  // in a round of `groups` groups.
  std::function<std::vector<IndexRange>(int64_t layer, int64_t groups)>
      contributed_groups;
};

// Borrowed; `tokens` and `labels` are [rows, row_tokens] int32, labels shifted
// and -100 where there is no target.
struct SequentialBatch {
  int64_t rows = 0;
  int64_t row_tokens = 0;
  const int32_t* tokens = nullptr;
  const int32_t* labels = nullptr;
  // [rows, row_tokens] int32 where rows pack sequences (StageRun::SetPositions)
  const int32_t* positions = nullptr;
  // What the routers would pick, given: [layers with experts, rows *
  // row_tokens, experts_per_token] (StageRun::SetPicks).
  const ExpertPick* picks = nullptr;
};

struct SequentialLoss {
  double loss_sum = 0;  // nats, added in micro-batch order
  int64_t target_tokens = 0;
  bool finite = true;

  double mean() const;  // 0 without targets
};

struct SequentialStep {
  SequentialLoss loss;
  double gradient_norm = 0;  // before clipping, of the mean loss
  // False when the loss is not finite, or the gradients of a scaled one.
  bool updated = false;
};

class SequentialTrainer {
 public:
  static absl::StatusOr<std::unique_ptr<SequentialTrainer>> Create(
      const SequentialOptions& options);

  // Sets a unit's masters and its compute copy, which is the rounded master;
  // moments become 0 unless given.  All are [UnitSpec::element_count], padding
  // included.  A frozen unit keeps the compute copy only; INVALID_ARGUMENT when
  // moments are given for one.
  absl::Status SetUnit(int unit, const float* master,
                       const float* exp_avg = nullptr,
                       const float* exp_avg_sq = nullptr);
  // How many steps came before: the next one is number steps + 1.
  void SetCompletedSteps(int64_t steps) { completed_steps_ = steps; }
  // Unused without options.scale_loss.
  const LossScaler& loss_scaler() const { return loss_scaler_; }
  void SetLossScaler(const LossScaler& scaler) { loss_scaler_ = scaler; }

  // One optimizer step over all of `batches`.  Without a finite loss nothing
  // is updated.  A step that was skipped is counted as one, not as an update.
  absl::StatusOr<SequentialStep> Step(
      const std::vector<SequentialBatch>& batches, double learning_rate);

  absl::StatusOr<SequentialLoss> Evaluate(
      const std::vector<SequentialBatch>& batches);

  const std::vector<UnitSpec>& units() const { return units_; }
  bool trainable(int unit) const {
    return IsTrainable(options_.config, options_.adapter, unit);
  }
  // The unit's values after the last Step; `gradient` before clipping, times
  // the loss scale.  All but `compute` REQUIRE a trainable unit.
  const float* master(int unit) const { return State(unit).master.data(); }
  const float* exp_avg(int unit) const { return State(unit).exp_avg.data(); }
  const float* exp_avg_sq(int unit) const {
    return State(unit).exp_avg_sq.data();
  }
  const std::byte* compute(int unit) const {
    return State(unit).compute.data();
  }
  // As the update before left it.  REQUIRES: options.stale.
  const std::byte* stale(int unit) const { return State(unit).stale.data(); }
  const float* gradient(int unit) const { return gradient_.dense(unit).data(); }

 private:
  struct UnitState {
    AlignedVector<float> master, exp_avg, exp_avg_sq;
    AlignedVector<std::byte> compute;
    AlignedVector<std::byte> stale;  // empty without it
  };

  explicit SequentialTrainer(const SequentialOptions& options);

  const UnitState& State(int unit) const {
    return units_state_[static_cast<size_t>(unit)];
  }
  // What a forward pass reads.
  const std::byte* Weights(int unit) const {
    return training_ && !State(unit).stale.empty() ? stale(unit)
                                                   : compute(unit);
  }
  DType DTypeOf(int unit) const {
    return UnitDType(options_.config, options_.dtype, unit);
  }
  LayerWeights WeightsOf(int64_t layer) const;
  absl::StatusOr<AlignedVector<std::byte>> Embed(
      const SequentialBatch& batch) const;
  // `micro_batch` is its number in the step; none: an evaluation.
  absl::StatusOr<std::unique_ptr<StageRun>> Forward(
      const SequentialBatch& batch, const std::byte* input,
      std::optional<uint64_t> micro_batch) const;
  absl::Status AddEmbeddingGradient(const SequentialBatch& batch, StageRun* run,
                                    SequentialGradient* group) const;
  absl::Status RunMicroBatch(const SequentialBatch& batch, double loss_scale,
                             SequentialGradient* group, SequentialLoss* loss);
  absl::StatusOr<SequentialGradient> RunGroup(
      const std::vector<SequentialBatch>& batches, double loss_scale,
      SequentialLoss* loss);
  absl::StatusOr<SequentialGradient> RunRound(
      const std::vector<SequentialBatch>& batches, double loss_scale,
      SequentialLoss* loss);
  // A node of a round's tree of `groups` groups, where it leaves a device.
  void RoundContributed(IndexRange node, int64_t groups,
                        SequentialGradient* sum) const;
  double GradientNorm() const;
  absl::Status UpdateParameter(const ParameterSpec& parameter, int unit,
                               const AdamWStep& step, float clip_factor);
  absl::Status Update(double learning_rate, float clip_factor);
  float scale() const { return options_.scale_loss ? loss_scaler_.scale() : 1; }

  const SequentialOptions options_;
  const std::vector<UnitSpec> units_;
  std::vector<UnitState> units_state_;
  SequentialGradient gradient_;
  int64_t completed_steps_ = 0;
  LossScaler loss_scaler_;
  uint64_t next_micro_batch_ = 0;  // of the step under way
  bool training_ = false;          // a step is under way, no evaluation
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_SEQUENTIAL_H_
