#include "scheduler/dispatch/sum_exchanges.h"

#include <algorithm>
#include <utility>

namespace roundhouse {

bool SumExchanges::MayHold(DeviceId device, const SumSetId& id) {
  Set& set = sets_[id];
  if (!set.devices.insert(device).second) Break(id, set);
  return !set.broken;
}

void SumExchanges::Held(SlotId slot, const SumSetId& id, int64_t groups,
                        int64_t total_groups, bool may_exchange) {
  Set& set = sets_[id];
  if (set.done) return;
  set.parts[slot] = {Part::State::kHeld, groups};
  if (set.broken) return Break(id, set);
  int64_t held = 0;
  for (const auto& [other, part] : set.parts) held += part.groups;
  if (held < total_groups) return;
  const bool apart = set.devices.size() == set.parts.size();
  if (!may_exchange || !apart) return Break(id, set);
  set.exchanging = true;
  for (auto& [part_slot, part] : set.parts) {
    part.state = Part::State::kExchanging;
    Give(Verb::kExchange, part_slot, id);
  }
}

// Parts that exchange are told once they have answered.
void SumExchanges::Break(const SumSetId& id, Set& set) {
  if (!set.broken && set.exchanging) ++failed_;
  set.broken = true;
  for (auto& [slot, part] : set.parts) {
    if (part.state != Part::State::kHeld &&
        part.state != Part::State::kSliced) {
      continue;
    }
    part.state = Part::State::kLeaving;
    Give(Verb::kDownload, slot, id);
  }
}

void SumExchanges::Exchanged(SlotId slot, const SumSetId& id, bool whole) {
  const auto found = sets_.find(id);
  if (found == sets_.end()) return;
  Set& set = found->second;
  const auto part = set.parts.find(slot);
  if (part == set.parts.end() ||
      part->second.state != Part::State::kExchanging) {
    return;
  }
  part->second.state = whole ? Part::State::kSliced : Part::State::kHeld;
  if (!whole || set.broken) return Break(id, set);
  const bool all =
      std::all_of(set.parts.begin(), set.parts.end(), [](const auto& entry) {
        return entry.second.state == Part::State::kSliced;
      });
  if (!all) return;
  set.done = true;
  DoneSet done{id, {}};
  for (const auto& [part_slot, ended] : set.parts) {
    done.slots.push_back(part_slot);
    Give(Verb::kRelease, part_slot, id);
  }
  done_.push_back(std::move(done));
}

void SumExchanges::NotHeld(SlotId slot, const SumSetId& id) {
  Set& set = sets_[id];
  if (set.done) return;
  set.parts.erase(slot);
  Break(id, set);
}

void SumExchanges::Gone(SlotId slot) {
  for (auto& [id, set] : sets_) {
    if (set.done || set.parts.erase(slot) == 0) continue;
    Break(id, set);
  }
}

void SumExchanges::BreakAll() {
  for (auto& [id, set] : sets_) {
    if (!set.done) Break(id, set);
  }
}

void SumExchanges::Forget(uint64_t step_number) {
  std::erase_if(sets_, [&](const auto& entry) {
    return entry.first.step_number == step_number;
  });
}

std::vector<SumExchanges::Order> SumExchanges::TakeOrders() {
  return std::exchange(orders_, {});
}

std::vector<SumExchanges::DoneSet> SumExchanges::TakeDone() {
  return std::exchange(done_, {});
}

int SumExchanges::TakeFailed() { return std::exchange(failed_, 0); }

std::vector<SlotId> SumExchanges::PartsOf(const SumSetId& id) const {
  std::vector<SlotId> slots;
  for (const auto& [slot, part] : sets_.at(id).parts) slots.push_back(slot);
  return slots;
}

}  // namespace roundhouse
