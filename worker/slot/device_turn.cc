#include "worker/slot/device_turn.h"

#include <memory>
#include <optional>
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

void BackfillThreadTurn::SetMicroBatch(const Slot& slot, size_t micro_batch) {
  in_layer_ = false;
  slot_ = &slot;
  index_ = slot.command.micro_batches[micro_batch].index;
}

int64_t BackfillThreadTurn::TakesNs() const {
  const std::optional<TimeRange> known = passes_.Range(pass_);
  if (known.has_value()) return known->shortest_ns;
  return any_pass_.Range(std::get<0>(pass_)).value_or(TimeRange()).longest_ns;
}

bool BackfillThreadTurn::Take() {
  const bool taken = board_.turns().Take(
      TakesNs(), [this] { return slot_->abandoned.load(); });
  taken_ns_ = MonotonicNs();
  return taken;
}

absl::Status BackfillThreadTurn::BeginLayer(uint32_t layer,
                                            PassDirection direction,
                                            ComputeClock& clock) {
  pass_ = {slot_->command.job, layer, direction};
  if (board_.turns().MayKeep(TakesNs())) {
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
  if (interrupted_) return absl::OkStatus();
  const int64_t took_ns = MonotonicNs() - layer_began_ns_;
  passes_.Note(pass_, took_ns);
  any_pass_.Note(std::get<0>(pass_), took_ns);
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
