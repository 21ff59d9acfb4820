#include "worker/slot/held_sums.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker/slot/download.h"

namespace roundhouse::worker {

using State = HeldUnit::State;

HeldSums::Taken HeldSums::Find(uint64_t attempt, uint32_t unit, State state,
                               State or_state) const {
  for (const auto& slot : board_.slots) {
    if (slot->attempt != attempt || slot->abandoned) continue;
    for (size_t u = 0; u < slot->held.size(); ++u) {
      const State found = slot->held[u].state;
      if (slot->command.units[u].unit == unit &&
          (found == state || found == or_state)) {
        return {slot.get(), u};
      }
    }
  }
  return {};
}

void HeldSums::Download(uint64_t attempt, uint32_t unit) {
  Taken leaving;
  board_.Update([&] {
    leaving = Find(attempt, unit, State::kHeld, State::kSliced);
    if (leaving.slot == nullptr) return;
    leaving.slot->held[leaving.unit].state = State::kLeaving;
    ++leaving.slot->copies_in_flight;  // it stays
  });
  if (leaving.slot != nullptr) Send(leaving);
}

// Of a slot that stays, which it need not afterwards.
void HeldSums::Send(const Taken& leaving) {
  SlotState& slot = *leaving.slot;
  for (HeldUnit::Sum& sum : slot.held[leaving.unit].sums) {
    absl::Status queued = QueueDownload(
        board_, downloads_, arena_, slot,
        {.pool = &slot.DownPool(leaving.unit),
         .buffer = sum.buffer,
         .to = slot.command.contributions[sum.contribution].buffer,
         .place = {.layer = slot.command.units[leaving.unit].layer},
         .after = std::move(sum.complete),
         .kill_point = "slot.contribution.copied",
         .copied = [&slot, unit = leaving.unit] { slot.NoteSum(unit); }});
    if (queued.ok()) continue;
    board_.Update([&] { slot.Fail(std::move(queued)); });
    break;
  }
  board_.Update([&] { --slot.copies_in_flight; });
}

void HeldSums::Release(uint64_t attempt, uint32_t unit) {
  board_.Update([&] {
    const Taken found = Find(attempt, unit, State::kSliced, State::kSliced);
    if (found.slot == nullptr) return;
    SlotState& slot = *found.slot;
    HeldUnit& held = slot.held[found.unit];
    held.state = State::kLeaving;
    BufferPool& pool = slot.DownPool(found.unit);
    for (HeldUnit::Sum& sum : held.sums) {
      pool.free.push_back(sum.buffer);
      --slot.contributions_left;  // nobody need be told
      --slot.sums_left[found.unit];
    }
  });
}

void HeldSums::MakeRoom(int64_t now_ns) {
  std::vector<Taken> leaving;
  {
    std::lock_guard<std::mutex> lock(board_.mutex);
    const int64_t limit_ns = absl::ToInt64Nanoseconds(
        board_.memory_wanted() ? kHoldLimit : kLongestHold);
    bool some_held = false;
    for (const auto& slot : board_.slots) {
      for (size_t u = 0; u < slot->held.size(); ++u) {
        HeldUnit& unit = slot->held[u];
        if (slot->abandoned || unit.state != State::kHeld) continue;
        some_held = true;
        if (now_ns - unit.since_ns < limit_ns) continue;
        unit.state = State::kLeaving;
        ++slot->copies_in_flight;  // it stays
        leaving.push_back({slot.get(), u});
      }
    }
    if (!some_held) board_.ForgetMemoryWanted();
  }
  for (const Taken& one : leaving) Send(one);
}

HeldSums::Taken HeldSums::TakeForExchange(uint64_t attempt, uint32_t unit) {
  Taken taken;
  board_.Update([&] {
    taken = Find(attempt, unit, State::kHeld, State::kHeld);
    if (taken.slot == nullptr) return;
    taken.slot->held[taken.unit].state = State::kExchanging;
    ++taken.slot->copies_in_flight;
  });
  return taken;
}

void HeldSums::Return(const Taken& taken, bool whole) {
  board_.Update([&] {
    taken.slot->held[taken.unit].state = whole ? State::kSliced : State::kHeld;
    --taken.slot->copies_in_flight;
  });
}

}  // namespace roundhouse::worker
