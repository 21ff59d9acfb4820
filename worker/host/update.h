// HostOp kUpdate: AdamW on one unit's fp32 master and moments, and the compute
// copy that follows from it.
#ifndef ROUNDHOUSE_WORKER_HOST_UPDATE_H_
#define ROUNDHOUSE_WORKER_HOST_UPDATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/wire/messages.h"
#include "worker/host/journal.h"
#include "worker/model/adamw.h"

namespace roundhouse::worker {

class Update : public ChunkWork {
 public:
  // `job` outlives it.  INVALID_ARGUMENT: a step below 1, a frozen unit, or
  // weights that are not of its size.
  static absl::StatusOr<std::unique_ptr<Update>> Make(const JobView& job,
                                                      const wire::HostOp& op,
                                                      int threads);

  absl::Status Compute(int thread, uint32_t chunk, std::byte* scratch) override;
  void CopyIntoPlace(uint32_t chunk, const std::byte* scratch) override;

 private:
  Update(const JobView& job, const wire::HostOp& op, std::byte* weights,
         int threads);
  // grad_sum * gradient_scale in fp32; grad_sum itself when the scale is 1.
  const float* Gradient(int thread, const Chunk& chunk);

  const AdamWStep step_;
  const float gradient_scale_;
  const DType dtype_;  // of the unit's compute copy
  const std::vector<Chunk> chunks_;
  // Of the whole unit.
  float* const master_;
  float* const exp_avg_;
  float* const exp_avg_sq_;
  const float* const grad_sum_;
  std::byte* const compute_;
  std::vector<std::vector<float>> scaled_;  // per thread
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_UPDATE_H_
