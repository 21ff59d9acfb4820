// JobSteps: where sums of gradients, and what crosses between slots, go.
#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "scheduler/dispatch/job_steps.h"

namespace roundhouse {

int64_t JobSteps::BlocksNeeded(const Slot& slot, const BlockPool& of) const {
  if (slot.sums == 0) return 0;
  const int head = shape_.layer_count - 1;
  int64_t layers = 0;
  if (&of == &head_blocks_) {
    layers = slot.layers.last == head && shape_.Trains(1 + head) ? 1 : 0;
  } else {
    for (int layer = slot.layers.first;
         layer <= std::min(slot.layers.last, head - 1); ++layer) {
      if (shape_.Trains(1 + layer)) ++layers;
    }
  }
  return layers * slot.sums;
}

int64_t JobSteps::BoundariesNeeded(const Slot& slot) const {
  const RoundBoundaries& boundaries = RoundOf(slot).boundaries;
  return boundaries.RowsNeed() +
         boundaries.SlotNeeds(slot.plan_slot, slot.micro_batches);
}

void JobSteps::TakeBlocks(Slot& slot) {
  slot.has_blocks = true;
  Round& round = RoundOf(slot);
  --round.slots_without_blocks;
  round.boundaries.TakeRows(boundary_blocks_);
  round.boundaries.TakeSlot(slot.plan_slot, slot.micro_batches,
                            boundary_blocks_);
  TakeBlocksOfSums(slot);
}

void JobSteps::TakeBlocksOfSums(Slot& slot) {
  if (slot.sums == 0) return;
  Round& round = RoundOf(slot);
  for (int layer = slot.layers.first; layer <= slot.layers.last; ++layer) {
    if (!shape_.Trains(1 + layer)) continue;
    BlockPool& pool = PoolOfLayer(layer);
    std::vector<Round::Block>& taken = round.blocks[layer];
    const int64_t micro_batch = slot.micro_batches.begin;
    auto place = std::find_if(taken.begin(), taken.end(), [&](const auto& b) {
      return b.micro_batch > micro_batch;
    });
    for (int64_t i = 0; i < slot.sums; ++i) {
      slot.blocks.push_back(pool.Take());
      place = std::next(taken.insert(place, {micro_batch, slot.blocks.back()}));
    }
  }
}

void JobSteps::FreeBlocks(Round& round, int layer) {
  BlockPool& pool = PoolOfLayer(layer);
  std::vector<Round::Block>& taken = round.blocks[layer];
  for (auto at = taken.rbegin(); at != taken.rend(); ++at) {
    pool.Free(at->block);
  }
  taken.clear();
}

std::vector<int> JobSteps::BlocksOfUnit(const Round& round, int unit) const {
  std::vector<int> blocks;
  for (const Round::Block& taken : round.blocks[LayerOf(unit)]) {
    blocks.push_back(taken.block);
  }
  return blocks;
}

// Whose slots send contributions to the unit, or to head_share().
int JobSteps::LayerOf(int unit) const {
  return unit == shape_.head_share() ? shape_.layer_count - 1 : unit - 1;
}

// A tied head's sums are of two units.
void JobSteps::FreeBlocksOfUnit(Round& round, int unit) {
  if (unit == 0) return;  // its rows' gradients are in blocks of the pool
  const int layer = LayerOf(unit);
  const bool both =
      layer != shape_.layer_count - 1 ||
      (round.reduce_done[shape_.head_share()] && round.reduce_done[1 + layer]);
  if (both) FreeBlocks(round, layer);
}

}  // namespace roundhouse
