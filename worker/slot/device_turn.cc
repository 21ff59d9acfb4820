#include "worker/slot/device_turn.h"

#include <algorithm>
#include <memory>
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

// An error of the device comes back from whatever is queued next.
void ComputeThreadTurn::Begin() {
  absl::StatusOr<std::unique_ptr<Event>> queued = stream_.Record();
  board_.turns().BeginWait(place_, queued.ok() ? *std::move(queued) : nullptr);
}

// --- the backfill thread ---

int64_t LayerPace::Of(const Key& key) const {
  const auto shortest = [](const std::vector<int64_t>& times) {
    return *std::min_element(times.begin(), times.end());
  };
  const auto found = ns_.find(key);
  if (found != ns_.end()) return shortest(found->second);
  int64_t longest = 0;
  const uint64_t job = std::get<0>(key);
  for (auto other = ns_.lower_bound({job, 0, PassDirection::kForward});
       other != ns_.end() && std::get<0>(other->first) == job; ++other) {
    longest = std::max(longest, shortest(other->second));
  }
  return longest;
}

void LayerPace::Note(const Key& key, int64_t ns) {
  if (ns_.size() >= kMostKeys && !ns_.contains(key)) ns_.clear();
  std::vector<int64_t>& times = ns_[key];
  if (times.size() == kKept) times.erase(times.begin());
  times.push_back(ns);
}

void BackfillThreadTurn::SetMicroBatch(const Slot& slot, size_t micro_batch) {
  in_layer_ = false;
  slot_ = &slot;
  index_ = slot.command.micro_batches[micro_batch].index;
}

bool BackfillThreadTurn::Take() {
  const bool taken = board_.turns().Take(
      pace_.Of(layer_), [this] { return slot_->abandoned.load(); });
  taken_ns_ = MonotonicNs();
  return taken;
}

absl::Status BackfillThreadTurn::BeginLayer(uint32_t layer,
                                            PassDirection direction,
                                            ComputeClock& clock) {
  layer_ = {slot_->command.job, layer, direction};
  if (board_.turns().MayKeep(pace_.Of(layer_))) {
    const int64_t now_ns = MonotonicNs();
    if (absl::Nanoseconds(now_ns - taken_ns_) >= kTellEvery) Tell(now_ns);
  } else {
    GiveBack();
    ASSIGN_OR_RETURN(ComputeClock::Mark queued, clock.Now());
    const int64_t began_ns = MonotonicNs();
    if (!Take()) return absl::CancelledError("the slot was given up");
    clock.NoteWait(std::move(queued), began_ns, taken_ns_, {});
  }
  in_layer_ = true;
  interrupted_ = false;
  layer_began_ns_ = MonotonicNs();
  return absl::OkStatus();
}

absl::Status BackfillThreadTurn::EndLayer() {
  in_layer_ = false;
  RETURN_IF_ERROR(Drain(stream_));
  if (!interrupted_) pace_.Note(layer_, MonotonicNs() - layer_began_ns_);
  return absl::OkStatus();
}

void BackfillThreadTurn::Begin() {
  interrupted_ = true;
  GiveBack();
}

// One that is given up is found out by who waited.
void BackfillThreadTurn::End() {
  if (in_layer_) Take();
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
