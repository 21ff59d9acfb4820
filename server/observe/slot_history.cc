#include "server/observe/slot_history.h"

#include <algorithm>
#include <utility>

namespace roundhouse {
namespace {

void Append(const SlotBlock& next, SlotBlock& block) {
  block.ended_ns = std::max(block.ended_ns, next.ended_ns);
  block.compute_ns += next.compute_ns;
  block.slots += next.slots;
  block.passes |= next.passes;
  block.first_step = std::min(block.first_step, next.first_step);
  block.last_step = std::max(block.last_step, next.last_step);
  block.layers.first = std::min(block.layers.first, next.layers.first);
  block.layers.last = std::max(block.layers.last, next.layers.last);
}

SlotBlock BlockOf(const SlotFacts& facts, int64_t at_ns) {
  return {.job = facts.job,
          .started_ns = at_ns,
          .ended_ns = at_ns,
          .slots = 1,
          .passes = PassBit(facts.kind),
          .first_step = facts.step,
          .last_step = facts.step,
          .layers = facts.layers};
}

}  // namespace

void SlotHistory::Started(const SlotFacts& facts, int64_t at_ns,
                          int64_t waited_ns) {
  // The one before was given up on the way: it computed until this wait began.
  GaveUp(at_ns - waited_ns);
  open_ = BlockOf(facts, at_ns);
  told_ns_ = at_ns;
}

void SlotHistory::Computed(int64_t at_ns, int64_t waited_ns) {
  if (!open_.has_value()) return;
  const int64_t span = std::max<int64_t>(0, at_ns - told_ns_);
  open_->compute_ns += span - std::clamp<int64_t>(waited_ns, 0, span);
  told_ns_ += span;
}

void SlotHistory::Ended(int64_t at_ns, int64_t waited_ns) {
  Computed(at_ns, waited_ns);
  if (!open_.has_value()) return;
  open_->ended_ns = told_ns_;
  Keep(*std::exchange(open_, std::nullopt));
}

void SlotHistory::Backfilled(const SlotFacts& facts, int64_t began_ns,
                             int64_t ended_ns, bool first) {
  SlotBlock block = BlockOf(facts, began_ns);
  block.ended_ns = std::max(began_ns, ended_ns);
  block.compute_ns = block.ended_ns - began_ns;
  block.slots = first ? 1 : 0;
  Keep(std::move(block));
}

void SlotHistory::GaveUp(int64_t now_ns) { Ended(now_ns, 0); }

// The block that takes in `slot`; null: it is one of its own.
SlotBlock* SlotHistory::BlockFor(const SlotBlock& slot) {
  const int64_t period = slot.started_ns / kSlotBlockNs;
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    if (block->started_ns / kSlotBlockNs != period) break;
    if (block->job == slot.job &&
        slot.ended_ns - block->started_ns <= kSlotBlockNs) {
      return &*block;
    }
  }
  return nullptr;
}

void SlotHistory::Keep(SlotBlock block) {
  const int64_t ended_ns = block.ended_ns;
  if (SlotBlock* const other = BlockFor(block)) {
    Append(block, *other);
  } else {
    blocks_.push_back(std::move(block));
  }
  Forget(ended_ns - kSlotWindowNs);
}

void SlotHistory::Forget(int64_t before_ns) {
  while (!blocks_.empty() && blocks_.front().ended_ns < before_ns) {
    blocks_.pop_front();
  }
  if (blocks_.size() <= kMaxSlotBlocks) return;
  since_ns_ = std::max(since_ns_, blocks_.front().ended_ns);
  blocks_.pop_front();
}

std::vector<SlotBlock> SlotHistory::Recent(int64_t now_ns) const {
  const auto first = std::find_if(
      blocks_.begin(), blocks_.end(), [now_ns](const SlotBlock& block) {
        return block.ended_ns >= now_ns - kSlotWindowNs;
      });
  std::vector<SlotBlock> recent(first, blocks_.end());
  if (open_.has_value()) {
    recent.push_back(*open_);
    SlotBlock& open = recent.back();
    open.ended_ns = std::max(now_ns, told_ns_);
    open.compute_ns += open.ended_ns - told_ns_;
  }
  // One that was computed in a wait of another ended before that one.
  std::stable_sort(recent.begin(), recent.end(),
                   [](const SlotBlock& a, const SlotBlock& b) {
                     return a.started_ns < b.started_ns;
                   });
  return recent;
}

}  // namespace roundhouse
