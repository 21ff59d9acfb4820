// A job's training state in the host arena: compute weights, fp32 masters,
// moments, gradient sums and contributions per unit, with the layout table that
// workers read (base/wire/layout.h).
//
// Host bytes per trainable parameter: compute 2 (bf16) or 4 (fp32), master 4,
// moments 8, gradient sum 4, contribution 4.  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_JOBS_TRAINING_STATE_H_
#define ROUNDHOUSE_SERVER_JOBS_TRAINING_STATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "base/wire/layout.h"
#include "server/pool/host_arena.h"

namespace roundhouse {

struct TrainingStateOptions {
  uint64_t job = 0;
  ModelConfig model;
  DType dtype = DType::kF32;  // of compute weights and activations
  uint64_t seed = 0;
  int64_t head_token_chunk = 1024;
  // Largest subtrees that one slot sends per unit: 1 while slots are one
  // device wide.
  int contributions_per_unit = 1;
  int scratch_slots = 8;  // the host worker's chunks in flight
};

// What TrainingState::Create takes from the arena, in bytes.
uint64_t TrainingStateBytes(const TrainingStateOptions& options);

class TrainingState {
 public:
  static absl::StatusOr<std::unique_ptr<TrainingState>> Create(
      HostArena& arena, const TrainingStateOptions& options);

  uint64_t layout_offset() const { return range_.offset(); }
  uint64_t host_bytes() const { return range_.bytes(); }
  const std::vector<UnitSpec>& units() const { return units_; }
  const wire::UnitLayout& layout(int unit) const { return layouts_[unit]; }
  const TrainingStateOptions& options() const { return options_; }

  wire::BufferRef Weights(int unit) const;
  wire::BufferRef Contribution(int unit, int index) const;
  wire::WordRef Version(int unit, uint64_t value) const {
    return {layouts_[unit].version_word_offset, value};
  }
  // The ledger's entry for `slot` (DESIGN.md, "Commit rule").
  void CommitToLedger(uint64_t slot);

 private:
  TrainingState(HostArena& arena, const TrainingStateOptions& options)
      : arena_(arena), options_(options) {}

  HostArena& arena_;
  const TrainingStateOptions options_;
  ArenaRange range_;
  std::vector<UnitSpec> units_;
  std::vector<wire::UnitLayout> layouts_;
  std::vector<uint64_t> contribution_offsets_;
  wire::JobLayout job_layout_ = {};
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_TRAINING_STATE_H_
