// What a round's slots contributed to a unit's gradient, added up the fixed
// tree over the round's groups, chunk by chunk.  All additions are fp32;
// contributions that are not are widened (HostOp::contribution_dtype).  Where
// devices have added them up already the contributions are slices of the sum.
//
// One for each operation.  Sum is called by several threads at once, each with
// a number of its own; what it answers is the thread's until it calls again.
#ifndef ROUNDHOUSE_WORKER_HOST_CONTRIBUTION_SUM_H_
#define ROUNDHOUSE_WORKER_HOST_CONTRIBUTION_SUM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/wire/arena.h"
#include "base/wire/messages.h"
#include "worker/host/job_view.h"
#include "worker/host/tree_program.h"

namespace roundhouse::worker {

class ContributionSum {
 public:
  // INVALID_ARGUMENT naming what is wrong: total_groups, groups that are not
  // covered once, a range that is no subtree, slices that do not follow each
  // other or are not fp32, a buffer that is too small.
  static absl::StatusOr<ContributionSum> Make(const wire::Arena& arena,
                                              const JobView& job,
                                              const wire::HostOp& op,
                                              int threads);

  bool empty() const { return contributions_.empty() && slices_.empty(); }
  // The chunk's: a contribution itself where there is one only.  Null where
  // there is none.
  const float* Sum(int thread, const Chunk& chunk);

 private:
  // Private memory of one thread: of the stack's positions.
  using Folds = std::vector<std::vector<float>>;
  struct Slice {
    uint64_t begin = 0;  // elements of the unit
    uint64_t end = 0;
    const float* values = nullptr;  // of `begin` on
  };

  absl::Status TakeSlices(const wire::Arena& arena, const wire::HostOp& op,
                          uint64_t elements);
  // `gathered` has them where they are of two slices.
  const float* Sliced(const Chunk& chunk, std::vector<float>& gathered) const;
  const float* Widened(size_t contribution, const Chunk& chunk,
                       std::vector<float>& widened) const;

  DType dtype_ = DType::kF32;
  std::vector<const std::byte*> contributions_;  // of the whole unit
  TreeProgram program_;                          // over them
  std::vector<Slice> slices_;                    // in place of contributions_
  std::vector<Folds> folds_;                     // per thread
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_CONTRIBUTION_SUM_H_
