// A job's tables in the arena, as the host worker reads them.
//
// Owner: the host worker, from ConfigureJob to ReleaseJob.  Immutable once
// made; the tensors behind it follow the rules of the operation under way.
#ifndef ROUNDHOUSE_WORKER_HOST_JOB_VIEW_H_
#define ROUNDHOUSE_WORKER_HOST_JOB_VIEW_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/wire/arena.h"
#include "base/wire/layout.h"

namespace roundhouse::worker {

// A scratch slot of the journal: a line for the norm partial, then room for a
// chunk's master, two moments and compute copy (or for its sum).
inline constexpr uint64_t kScratchHeaderBytes = 64;
inline constexpr uint64_t kScratchSlotBytes =
    kScratchHeaderBytes + 4 * sizeof(float) * wire::kChunkElements;

// `elements` consecutive elements of one parameter.
struct Chunk {
  uint64_t unit_element = 0;       // where it starts in the unit
  uint64_t parameter_element = 0;  // where it starts in its parameter
  uint64_t elements = 0;           // at most kChunkElements
  bool weight_decay = false;
};

class JobView {
 public:
  // INVALID_ARGUMENT naming what is wrong: another layout version, scratch
  // slots that are too few or too small, units whose chunks don't add up, whose
  // dtype is neither the job's nor fp32, or that have some of what training
  // needs and lack the rest.
  static absl::StatusOr<JobView> Create(wire::Arena& arena,
                                        uint64_t layout_offset);

  uint64_t job() const { return layout_->job; }
  // The type of activations and of the model's weights.
  DType dtype() const { return layout_->dtype; }
  const wire::ModelDims& model() const { return layout_->model; }
  uint32_t scratch_slot_count() const { return layout_->scratch_slot_count; }
  std::byte* Scratch(uint32_t slot) const;

  uint32_t unit_count() const { return layout_->unit_count; }
  // REQUIRES: unit < unit_count().
  const wire::UnitLayout& unit(uint32_t unit) const { return units_[unit]; }
  // The type of the unit's compute weights: the job's, or fp32 for adapters.
  DType dtype(uint32_t unit) const { return units_[unit].dtype; }
  // INVALID_ARGUMENT: the unit is frozen; it has compute weights only.
  absl::Status CheckTrainable(uint32_t unit) const;
  // Whether it has a gradient sum.  Without one its update adds what was
  // contributed (worker/host/update.h).
  bool KeepsSum(uint32_t unit) const {
    return units_[unit].grad_sum_offset != 0;
  }
  // In chunk order.
  std::vector<Chunk> Chunks(uint32_t unit) const;
  // Where the embedding's matrix starts in `unit`, in elements.
  // INVALID_ARGUMENT: the unit has none, or not [vocab_size, hidden_size] of
  // the job's dtype.
  absl::StatusOr<uint64_t> EmbeddingElement(uint32_t unit) const;

  std::atomic<uint64_t>* Journal(uint32_t unit) const;
  double* NormPartials(uint32_t unit) const;
  // A unit's fp32 tensor at one of its offsets.
  float* Fp32(uint32_t unit, uint64_t offset) const;
  // Compute weights of the whole unit, which a job may have twice.
  // INVALID_ARGUMENT: other bytes than those of the unit.
  absl::StatusOr<std::byte*> Weights(uint32_t unit,
                                     const wire::BufferRef& weights) const;

 private:
  JobView(wire::Arena& arena, const wire::JobLayout* layout);
  absl::Status Check() const;
  absl::Status CheckUnit(uint32_t unit) const;

  wire::Arena* arena_;
  const wire::JobLayout* layout_;
  const wire::UnitLayout* units_;
  const wire::ParameterLayout* parameters_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_JOB_VIEW_H_
