#include "worker/slot/slot_feeder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/kill_point.h"
#include "worker/board/lost_device.h"

namespace roundhouse::worker {

void SlotFeeder::Run() {
  while (!board_.stopping()) {
    pulse_.Beat();
    held_.MakeRoom(MonotonicNs());
    if (Step()) continue;
    wire::WaitForRing(
        doorbell_,
        step_.refused ? SlotBoard::kAskAgainEvery : Heartbeats::kMaxWait,
        [this] { return SomethingToDo(); });
  }
}

bool SlotFeeder::SomethingToDo() const {
  return board_.rung() || board_.stopping() ||
         std::any_of(step_.awaited.begin(), step_.awaited.end(),
                     [this](const wire::WordRef& word) {
                       return wire::Reached(arena_.WordAt(word.offset),
                                            word.value);
                     }) ||
         std::any_of(step_.attempts.begin(), step_.attempts.end(),
                     [this](uint64_t attempt) {
                       return wire::Cancelled(doorbell_, attempt);
                     });
}

bool SlotFeeder::Step() {
  board_.TakeRing();
  step_.awaited.clear();
  step_.attempts.clear();
  board_.LookAtSlots(feed_, step_);
  const bool again =
      step_.gave_up || !step_.raises.empty() || !step_.ended.empty();
  // Whoever computes or waits for a slot given up must look.
  if (std::exchange(step_.gave_up, false)) board_.WakeAll();
  EnqueueUploads();
  RaiseWords();
  TellSums();
  EndSlots();
  return again;
}

void SlotFeeder::EnqueueUploads() {
  for (const BegunUpload& upload : step_.uploads) {
    Slot& slot = *upload.slot;
    CopyRequest request;
    request.priority = upload.priority;
    request.purpose = upload.purpose;
    request.to = upload.to->data();
    request.from = arena_.Bytes(upload.from);
    request.bytes = upload.from.bytes;
    request.stats = &slot.stats;
    request.place = upload.place;
    request.abandoned = &slot.abandoned;
    request.done = [&board = board_, &slot,
                    name = upload.name](absl::Status status) {
      board.EndUpload(slot, name, std::move(status));
    };
    absl::Status queued = uploads_.Enqueue(std::move(request));
    if (queued.ok()) continue;
    board_.Fail(slot, std::move(queued));
    board_.TakeBackCopy(slot);
  }
  step_.uploads.clear();
}

void SlotFeeder::RaiseWords() {
  for (const FeedStep::Raise& raise : step_.raises) {
    Slot& slot = *raise.slot;
    if (board_.GivenUp(slot)) continue;
    const wire::WordRef& word = slot.command.outputs[raise.output].raise;
    if (word.offset != 0) {
      wire::Raise(arena_.WordAt(word.offset), word.value, arena_.doorbells());
    }
    KillPoint("slot.output.raised");
    board_.SettleOutput(slot, raise.output);
  }
  step_.raises.clear();
}

void SlotFeeder::TellSums() {
  for (FeedStep::Sums& told : step_.sums) {
    outbox_.Send(told.attempt, std::move(told.sums));
    KillPoint("slot.sums.told");
  }
  step_.sums.clear();
}

void SlotFeeder::EndSlots() {
  if (step_.ended.empty()) return;
  board_.WakeAll();  // memory is free again
  for (const auto& slot : step_.ended) EndSlot(*slot);
  step_.ended.clear();
}

void SlotFeeder::EndSlot(const SlotState& slot) {
  if (slot.Finished()) {
    KillPoint("slot.done.before");
    outbox_.Send(slot.attempt, slot.Done(MonotonicNs(), device_.TakePeak()));
    KillPoint("slot.done.after");
  } else if (!slot.failure.ok()) {
    EndProcessIfLost(slot.failure);
    if (!slot.command.again) EndProcessIfExhausted(slot.failure);
    outbox_.Send(slot.attempt,
                 wire::FailedWith(slot.command.slot, slot.failure));
  } else {
    outbox_.Send(slot.attempt, wire::Withdrawn{slot.command.slot});
  }
}

}  // namespace roundhouse::worker
