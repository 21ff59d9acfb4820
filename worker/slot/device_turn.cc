#include "worker/slot/device_turn.h"

#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace roundhouse::worker {

// --- the compute thread ---

void ComputeThreadTurn::SetMicroBatch(const Slot& slot, size_t micro_batch) {
  place_ = {.job = slot.command.job,
            .kind = static_cast<uint32_t>(slot.command.kind),
            .first_layer = slot.command.first_layer,
            .micro_batch = micro_batch};
  next_ = WaitPlace::For::kNextSlot;
}

void ComputeThreadTurn::WaitFor(WaitPlace::For what, uint64_t index) {
  place_.what = what;
  place_.index = index;
}

// The device may still compute what was queued.  An error of it comes back from
// whatever is queued next.
void ComputeThreadTurn::Begin() {
  if (board_.computes_backfill()) Drain(stream_).IgnoreError();
  board_.turns().BeginWait(place_);
}

// --- the backfill thread ---

int64_t LayerPace::Of(const Key& key) const {
  const auto found = ns_.find(key);
  return found == ns_.end() ? 0 : found->second;
}

void LayerPace::Note(const Key& key, int64_t ns) {
  if (ns_.size() >= kMostKeys && !ns_.contains(key)) ns_.clear();
  ns_[key] = ns;
}

void BackfillThreadTurn::SetMicroBatch(const Slot& slot, size_t micro_batch) {
  slot_ = &slot;
  index_ = slot.command.micro_batches[micro_batch].index;
}

absl::Status BackfillThreadTurn::BeginLayer(uint32_t layer,
                                            PassDirection direction,
                                            ComputeClock& clock) {
  layer_ = {slot_->command.job, layer, direction};
  const int64_t takes_ns = pace_.Of(layer_);
  ComputeTurns& turns = board_.turns();
  if (turns.MayKeep(takes_ns)) {
    const int64_t now_ns = MonotonicNs();
    if (absl::Nanoseconds(now_ns - taken_ns_) >= kTellEvery) Tell(now_ns);
  } else {
    GiveBack();
    ASSIGN_OR_RETURN(ComputeClock::Mark queued, clock.Now());
    const int64_t began_ns = MonotonicNs();
    if (!turns.Take(takes_ns, [this] { return slot_->abandoned.load(); })) {
      return absl::CancelledError("the slot was given up");
    }
    taken_ns_ = MonotonicNs();
    clock.NoteWait(std::move(queued), began_ns, taken_ns_, {});
  }
  layer_began_ns_ = MonotonicNs();
  return absl::OkStatus();
}

absl::Status BackfillThreadTurn::EndLayer() {
  RETURN_IF_ERROR(Drain(stream_));
  pace_.Note(layer_, MonotonicNs() - layer_began_ns_);
  return absl::OkStatus();
}

void BackfillThreadTurn::Tell(int64_t now_ns) {
  outbox_.Send(slot_->attempt,
               wire::BackfillComputed{.slot = slot_->command.slot,
                                      .index = index_,
                                      .started_ns = taken_ns_,
                                      .ended_ns = now_ns,
                                      .fills_bubble = board_.HasOthers()});
  taken_ns_ = now_ns;
}

// Told first: whoever computes next tells later.
void BackfillThreadTurn::GiveBack() {
  if (!board_.turns().has()) return;
  Tell(MonotonicNs());
  board_.turns().GiveBack();
}

}  // namespace roundhouse::worker
