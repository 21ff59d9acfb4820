#include "scheduler/dispatch/boundary_pool.h"

#include <numeric>

#include "base/log.h"

namespace roundhouse {

void BlockPool::SetCount(int64_t count) {
  if (count == count_) return;
  ROUNDHOUSE_CHECK(free() == count_) << "blocks are in use";
  count_ = count;
  free_.resize(count);
  std::iota(free_.rbegin(), free_.rend(), 0);
}

int BlockPool::Take() {
  ROUNDHOUSE_CHECK(!free_.empty());
  const int block = free_.back();
  free_.pop_back();
  return block;
}

RoundBoundaries::RoundBoundaries(std::shared_ptr<const BoundaryMap> map,
                                 int micro_batches)
    : map_(std::move(map)),
      micro_batches_(micro_batches),
      entries_(map_->tensors.size() * micro_batches) {
  for (size_t t = 0; t < map_->tensors.size(); ++t) {
    for (int64_t i = 0; i < micro_batches_; ++i) {
      At(static_cast<int>(t), i).readers_left = map_->tensors[t].readers;
    }
  }
}

int64_t RoundBoundaries::SlotNeeds(int slot, IndexRange micro_batches) const {
  return static_cast<int64_t>(map_->slots[slot].outputs.size()) *
         micro_batches.size();
}

void RoundBoundaries::TakeRows(BlockPool& pool) {
  if (rows_taken_) return;
  rows_taken_ = true;
  Take(0, {0, micro_batches_}, pool);
}

void RoundBoundaries::TakeSlot(int slot, IndexRange micro_batches,
                               BlockPool& pool) {
  for (const int tensor : map_->slots[slot].outputs) {
    Take(tensor, micro_batches, pool);
  }
}

SlotBoundaries RoundBoundaries::OfSlot(int slot,
                                       IndexRange micro_batches) const {
  const BoundaryMap::SlotTensors& tensors = map_->slots[slot];
  SlotBoundaries boundaries;
  boundaries.input = map_->tensors[tensors.input].value;
  boundaries.inputs = BlocksOf(tensors.input, micro_batches);
  if (tensors.gradient.has_value()) {
    boundaries.gradients = BlocksOf(*tensors.gradient, micro_batches);
  }
  for (const int tensor : tensors.outputs) {
    boundaries.outputs.push_back({map_->tensors[tensor].value,
                                  map_->tensors[tensor].boundary,
                                  BlocksOf(tensor, micro_batches)});
  }
  return boundaries;
}

std::vector<int> RoundBoundaries::OfRowGradient() const {
  if (!map_->row_gradient.has_value()) return {};
  return BlocksOf(*map_->row_gradient, {0, micro_batches_});
}

void RoundBoundaries::CommitSlot(int slot, IndexRange micro_batches,
                                 BlockPool& pool) {
  const BoundaryMap::SlotTensors& tensors = map_->slots[slot];
  Read(tensors.input, micro_batches, pool);
  if (tensors.gradient.has_value()) {
    Read(*tensors.gradient, micro_batches, pool);
  }
}

void RoundBoundaries::CommitRowGradient(BlockPool& pool) {
  if (!map_->row_gradient.has_value()) return;
  Read(*map_->row_gradient, {0, micro_batches_}, pool);
}

void RoundBoundaries::FreeAll(BlockPool& pool) {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->block != kNone && entry->readers_left > 0) {
      pool.Free(entry->block);
    }
    entry->readers_left = 0;
  }
}

void RoundBoundaries::Take(int tensor, IndexRange micro_batches,
                           BlockPool& pool) {
  for (int64_t i = micro_batches.begin; i < micro_batches.end; ++i) {
    At(tensor, i).block = pool.Take();
  }
}

void RoundBoundaries::Read(int tensor, IndexRange micro_batches,
                           BlockPool& pool) {
  for (int64_t i = micro_batches.end - 1; i >= micro_batches.begin; --i) {
    Entry& entry = At(tensor, i);
    if (--entry.readers_left == 0) pool.Free(entry.block);
  }
}

std::vector<int> RoundBoundaries::BlocksOf(int tensor,
                                           IndexRange micro_batches) const {
  std::vector<int> blocks;
  blocks.reserve(micro_batches.size());
  for (int64_t i = micro_batches.begin; i < micro_batches.end; ++i) {
    blocks.push_back(At(tensor, i).block);
  }
  return blocks;
}

}  // namespace roundhouse
