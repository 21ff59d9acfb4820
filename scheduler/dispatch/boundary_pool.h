// Which blocks of host memory a job's activations and gradients between stages
// have (scheduler/plan/boundary_tensors.h says when they take and free them,
// and why nobody waits for ever).
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_DISPATCH_BOUNDARY_POOL_H_
#define ROUNDHOUSE_SCHEDULER_DISPATCH_BOUNDARY_POOL_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/reduction.h"
#include "scheduler/dispatch/actions.h"
#include "scheduler/plan/boundary_tensors.h"

namespace roundhouse {

// Blocks of one size, and which of them nobody has.
class BlockPool {
 public:
  // Blocks are numbered from 0.  REQUIRES: none is taken (checked), unless
  // there are as many already.
  void SetCount(int64_t count);
  int64_t count() const { return count_; }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  // The one that was freed last.  REQUIRES: one is free (checked).
  int Take();
  void Free(int block) { free_.push_back(block); }

 private:
  int64_t count_ = 0;
  std::vector<int> free_;
};

// The blocks of one round: of each tensor and micro-batch, from when it is
// taken until nobody reads it any more.  A slot that is sent again after that
// is told the same block, which may be another's by then: the word of what it
// would write there is raised, so it writes nothing.
class RoundBoundaries {
 public:
  RoundBoundaries() = default;  // of no micro-batches
  RoundBoundaries(std::shared_ptr<const BoundaryMap> map, int micro_batches);

  // How many blocks the rows take, none once they have them, and how many a
  // part of the plan's slot takes.
  int64_t RowsNeed() const { return rows_taken_ ? 0 : micro_batches_; }
  int64_t SlotNeeds(int slot, IndexRange micro_batches) const;
  void TakeRows(BlockPool& pool);  // unless they have theirs
  void TakeSlot(int slot, IndexRange micro_batches, BlockPool& pool);
  // They are where they were taken.
  SlotBoundaries OfSlot(int slot, IndexRange micro_batches) const;
  std::vector<int> OfRows() const { return BlocksOf(0, {0, micro_batches_}); }
  std::vector<int> OfRowGradient() const;

  // What they read is free where nobody else reads it.
  void CommitSlot(int slot, IndexRange micro_batches, BlockPool& pool);
  void CommitRowGradient(BlockPool& pool);
  // Whatever is taken: the round is dropped.
  void FreeAll(BlockPool& pool);

 private:
  static constexpr int kNone = -1;
  struct Entry {
    int block = kNone;
    int readers_left = 0;
  };

  Entry& At(int tensor, int64_t micro_batch) {
    return entries_[tensor * micro_batches_ + micro_batch];
  }
  const Entry& At(int tensor, int64_t micro_batch) const {
    return entries_[tensor * micro_batches_ + micro_batch];
  }
  void Take(int tensor, IndexRange micro_batches, BlockPool& pool);
  void Read(int tensor, IndexRange micro_batches, BlockPool& pool);
  std::vector<int> BlocksOf(int tensor, IndexRange micro_batches) const;

  std::shared_ptr<const BoundaryMap> map_;
  int64_t micro_batches_ = 0;
  bool rows_taken_ = false;
  std::vector<Entry> entries_;  // by tensor, then micro-batch
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_DISPATCH_BOUNDARY_POOL_H_
