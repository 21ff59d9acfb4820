// For tests of reductions: rounds as the daemon would send them, and what they
// must add up to, by plain recursion over the tree of groups.
//
//   ReduceReference reference(job, unit);
//   const Round round = MakeRound(job, groups, true, false, &op);
//   reference.Add(round, groups, true);
//   ... the worker does `op`; its sum is reference.sum(), bit for bit ...
#ifndef ROUNDHOUSE_WORKER_HOST_REDUCE_REFERENCE_H_
#define ROUNDHOUSE_WORKER_HOST_REDUCE_REFERENCE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/wire/messages.h"
#include "worker/host/test_job.h"

namespace roundhouse::worker {

using Row = std::optional<std::vector<float>>;

// The sum of groups [begin, end); none: none of them has anything.
Row TreeSum(const std::vector<Row>& groups, int64_t begin, int64_t end);

struct Round {
  std::vector<std::vector<float>> uses;  // per group: the unit's gradient
  std::vector<wire::HostMicroBatch> micro_batches;
};

// Random gradients of each group; `op` gets them as the sums of the largest
// subtrees of [0, cut) and [cut, groups), as two slots would send them.
Round MakeRound(TestJob& job, uint32_t groups, bool contributions,
                bool micro_batches, wire::HostOp* op, int64_t vocab_end = 0);

// A unit's sum over rounds.  Thread-compatible; the job outlives it.
class ReduceReference {
 public:
  ReduceReference(TestJob& job, uint32_t unit) : job_(job), unit_(unit) {}

  void Add(const Round& round, uint32_t groups, bool contributions);
  const std::vector<float>& sum() const { return sum_; }
  // By chunks, parameter after parameter.
  double NormSquared() const;

 private:
  Row RowSum(const Round& round, uint32_t groups, int32_t row) const;

  TestJob& job_;
  const uint32_t unit_;
  std::vector<float> sum_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_REDUCE_REFERENCE_H_
