#include "worker/board/held_sums.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker/board/download.h"

namespace roundhouse::worker {

void HeldSums::Download(uint64_t attempt, uint32_t unit) {
  TakenSums leaving = board_.TakeSumsToDownload(attempt, unit);
  if (leaving.slot != nullptr) Send(std::move(leaving));
}

void HeldSums::Send(TakenSums leaving) {
  Slot& slot = *leaving.slot;
  for (HeldSum& sum : leaving.sums) {
    absl::Status queued = QueueDownload(
        board_, downloads_, arena_, slot,
        {.pool = PoolName::Down(slot, leaving.unit),
         .buffer = sum.buffer,
         .part = {CopiedPart::Kind::kSum, leaving.unit},
         .to = slot.command.contributions[sum.contribution].buffer,
         .place = {.layer = slot.command.units[leaving.unit].layer},
         .after = std::move(sum.complete)});
    if (queued.ok()) continue;
    board_.Fail(slot, std::move(queued));
    break;
  }
  board_.EndTaking(slot);
}

void HeldSums::Release(uint64_t attempt, uint32_t unit) {
  board_.ReleaseSlicedSums(attempt, unit);
}

void HeldSums::MakeRoom(int64_t now_ns) {
  for (TakenSums& one : board_.TakeSumsHeldTooLong(
           now_ns, {.memory_wanted = kHoldLimit, .otherwise = kLongestHold})) {
    Send(std::move(one));
  }
}

TakenSums HeldSums::TakeForExchange(uint64_t attempt, uint32_t unit) {
  return board_.TakeSumsToExchange(attempt, unit);
}

void HeldSums::Return(TakenSums taken, bool whole) {
  board_.ReturnSums(std::move(taken),
                    whole ? HeldUnit::State::kSliced : HeldUnit::State::kHeld);
}

}  // namespace roundhouse::worker
