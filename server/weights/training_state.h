// A job's training state in the host arena: compute weights, fp32 masters,
// moments and gradient sums per unit, with the layout table that workers read
// (base/wire/layout.h).  What slots contribute to the sums belongs to the plan
// (server/planning/contribution_buffers.h).
//
// Units are those of the wire (base/model/parameters.h, TrainingUnits).  With
// adapters the model's own are frozen: they lie in a BaseWeights that jobs
// share, and the state holds the adapters only.
//
// Host bytes per trainable parameter: compute 2 (bf16) or 4 (fp32, and adapters
// always), twice with an asynchronous optimizer, master 4, moments 8, gradient
// sum 4 (none with one_pass).  Per frozen parameter, once for all jobs: 2 or 4.
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_TRAINING_STATE_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_TRAINING_STATE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "base/wire/layout.h"
#include "server/arena/host_arena.h"
#include "server/weights/base_weights.h"

namespace roundhouse {

struct TrainingStateOptions {
  uint64_t job = 0;
  ModelConfig model;
  AdapterConfig adapter;      // not present(): the whole model trains
  DType dtype = DType::kF32;  // of the model's weights and of activations
  uint64_t seed = 0;
  int64_t head_token_chunk = 1024;
  int scratch_slots = 8;  // the host worker's chunks in flight
  // Compute weights of what trains exist twice, as the last update left them
  // and as the one before it did: a step reads the latter.
  bool stale = false;
  // Units but the embedding's keep no gradient sum: their updates add what
  // slots contributed.  For steps of one round that no norm is waited for.
  bool one_pass = false;
};

// What TrainingState::Create takes from the arena, in bytes; without a base.
uint64_t TrainingStateBytes(const TrainingStateOptions& options);

class TrainingState {
 public:
  // With adapters `base` has the frozen weights, in options.dtype; without it
  // is null.  Shared, because other jobs and the cache hold it too.
  static absl::StatusOr<std::unique_ptr<TrainingState>> Create(
      HostArena& arena, const TrainingStateOptions& options,
      std::shared_ptr<BaseWeights> base = nullptr);

  uint64_t layout_offset() const { return range_.offset(); }
  uint64_t host_bytes() const { return range_.bytes(); }  // without the base
  // Null without adapters.
  const std::shared_ptr<BaseWeights>& base() const { return base_; }
  const std::vector<UnitSpec>& units() const { return *units_; }
  const std::shared_ptr<const std::vector<UnitSpec>>& shared_units() const {
    return units_;
  }
  const wire::UnitLayout& layout(int unit) const { return layouts_[unit]; }
  const TrainingStateOptions& options() const { return options_; }

  // Whether the job updates the unit.
  bool trainable(int unit) const {
    return IsTrainable(options_.model, options_.adapter, unit);
  }
  DType dtype(int unit) const { return layouts_[unit].dtype; }
  // The dispatcher counts the model's units only: what its `unit` trains is
  // this one, with adapters those of its layer.
  int TrainedUnit(int unit) const {
    const auto layers = static_cast<int>(options_.model.layer_count);
    return options_.adapter.present() ? layers + 1 + unit : unit;
  }
  // What the dispatcher calls a slot's sums of this unit (JobShape); those of
  // unit 0 are a tied head's share.
  int SummedUnit(int unit) const {
    const auto layers = static_cast<int>(options_.model.layer_count);
    if (options_.adapter.present()) return unit - layers - 1;
    return unit == 0 ? layers + 2 : unit;
  }

  // Compute weights as update number `update` left them; as they were loaded
  // where it is 0 or below.  Of an older update than the last two, and without
  // options().stale, they are those of a later one by now.
  wire::BufferRef Weights(int unit, int64_t update) const;
  // The word that says `value`; for a frozen unit the only version there is,
  // whatever `value`.
  wire::WordRef Version(int unit, uint64_t value) const {
    return {layouts_[unit].version_word_offset,
            trainable(unit) ? value : kBaseVersion};
  }
  // Writes the commit ledger's entry for `slot` (wire::JobLayout).
  void CommitToLedger(uint64_t slot);

 private:
  TrainingState(HostArena& arena, const TrainingStateOptions& options,
                std::shared_ptr<BaseWeights> base)
      : arena_(arena), options_(options), base_(std::move(base)) {}

  HostArena& arena_;
  const TrainingStateOptions options_;
  const std::shared_ptr<BaseWeights> base_;
  ArenaRange range_;
  std::shared_ptr<const std::vector<UnitSpec>> units_;
  std::vector<wire::UnitLayout> layouts_;
  std::vector<uint64_t> second_offsets_;  // per unit; 0: it has one copy
  wire::JobLayout job_layout_ = {};
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_TRAINING_STATE_H_
