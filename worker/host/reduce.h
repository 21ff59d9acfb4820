// HostOp kReduce: a round's gradient of one unit, added in the job's order.
//
//   grad_sum = sum of the contributions up the fixed tree over total_groups,
//              or grad_sum + that
//   then, of the embedding's unit, for each vocabulary row that has tokens
//   grad_sum = grad_sum + the sum of its tokens' gradients
//
// Contributions add as contribution_sum.h says.  The first addend is copied; a
// row without any is zero.  So one operation adds the same as two, of which the
// first has the contributions and the second the rows.  The norm partial of a
// chunk is the sum of squares of its new grad_sum in double, in element order.
// All additions are fp32.
//
// With keep_partials only chunks are touched that a row with tokens lies in.
#ifndef ROUNDHOUSE_WORKER_HOST_REDUCE_H_
#define ROUNDHOUSE_WORKER_HOST_REDUCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/wire/arena.h"
#include "base/wire/messages.h"
#include "worker/host/contribution_sum.h"
#include "worker/host/embedding_rows.h"
#include "worker/host/journal.h"

namespace roundhouse::worker {

class Reduce : public ChunkWork {
 public:
  // `job` outlives it.  INVALID_ARGUMENT naming what is wrong: as
  // ContributionSum says, bad tokens, a frozen unit, one that keeps no sum.
  // FAILED_PRECONDITION: a gradient's word is not raised yet.
  static absl::StatusOr<std::unique_ptr<Reduce>> Make(wire::Arena& arena,
                                                      const JobView& job,
                                                      const wire::HostOp& op,
                                                      int threads);

  absl::Status Compute(int thread, uint32_t chunk, std::byte* scratch) override;
  void CopyIntoPlace(uint32_t chunk, const std::byte* scratch) override;
  bool Unchanged(uint32_t chunk) const override;

  // Partials added in chunk order; 0 unless the operation wants the norm.
  double NormSquared() const;

 private:
  // Private memory of one thread.
  struct Workspace {
    EmbeddingRows::Stack rows;
    std::vector<float> row;  // the sum of one
  };

  Reduce(const JobView& job, const wire::HostOp& op);
  absl::Status TakeMicroBatches(wire::Arena& arena, const wire::HostOp& op);
  // `sum`: of the chunk, where there is one already.
  void AddRows(Workspace& space, const Chunk& chunk, bool there,
               float* sum) const;

  const JobView& job_;
  const uint32_t unit_;
  const bool add_to_sum_;
  const bool want_norm_;
  const bool keep_partials_;
  const std::vector<Chunk> chunks_;
  float* grad_sum_ = nullptr;
  double* norm_partials_ = nullptr;
  ContributionSum contributed_;
  std::optional<EmbeddingRows> embedding_;
  std::vector<Workspace> workspaces_;  // per thread
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_REDUCE_H_
