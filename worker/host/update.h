// HostOp kUpdate: AdamW on one unit's fp32 master and moments, and the compute
// copy that follows from it.  The gradient is grad_sum, or with contributions
// their sum: reduction and update in one pass over them, of a unit that keeps
// no sum (docs/design/planner.md: 8 bytes of host traffic less a parameter).
// The norm partials are then written as a reduction writes them, and the bits
// are those of the two operations.
#ifndef ROUNDHOUSE_WORKER_HOST_UPDATE_H_
#define ROUNDHOUSE_WORKER_HOST_UPDATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/wire/arena.h"
#include "base/wire/messages.h"
#include "worker/host/contribution_sum.h"
#include "worker/host/journal.h"
#include "worker/model/adamw.h"

namespace roundhouse::worker {

class Update : public ChunkWork {
 public:
  // `job` outlives it.  INVALID_ARGUMENT: a step below 1, a frozen unit,
  // weights that are not of its size, contributions as ContributionSum says, or
  // none where no sum is kept.
  static absl::StatusOr<std::unique_ptr<Update>> Make(const wire::Arena& arena,
                                                      const JobView& job,
                                                      const wire::HostOp& op,
                                                      int threads);

  absl::Status Compute(int thread, uint32_t chunk, std::byte* scratch) override;
  void CopyIntoPlace(uint32_t chunk, const std::byte* scratch) override;

  // The squared norm of what was contributed; 0 unless the operation wants the
  // norm.
  double NormSquared() const;

 private:
  Update(const JobView& job, const wire::HostOp& op, std::byte* weights,
         int threads);
  // What grad_sum is, or would be.
  const float* Sum(int thread, const Chunk& chunk);
  // `sum` times gradient_scale in fp32; `sum` itself when the scale is 1.
  const float* Scaled(int thread, const Chunk& chunk, const float* sum);

  const AdamWStep step_;
  const float gradient_scale_;
  const DType dtype_;  // of the unit's compute copy
  const std::vector<Chunk> chunks_;
  // These belong to the whole unit.
  float* const master_;
  float* const exp_avg_;
  float* const exp_avg_sq_;
  const float* grad_sum_ = nullptr;  // null: contributions in its place
  double* norm_partials_ = nullptr;  // null: not wanted
  ContributionSum contributed_;
  std::byte* const compute_;
  std::vector<std::vector<float>> scaled_;  // per thread
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_UPDATE_H_
