// JobSteps: slots that devices do not keep: held ones, those of devices that
// leave or are lost, and steps that are given up.
#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "base/turns.h"
#include "scheduler/dispatch/job_steps.h"

namespace roundhouse {

void JobSteps::HoldSlots(StartedSlots started) {
  slots_held_ = true;
  WithdrawFrom(started == StartedSlots::kEnd ? FirstNotStarted() : SlotId{});
}

void JobSteps::ReleaseSlots() { slots_held_ = false; }

void JobSteps::WorkerDied(SlotId id) {
  Slot& slot = slots_.at(id);
  if (slot.state == Slot::State::kWithdrawing) {
    Unplace(id);  // Its process is gone: nothing more comes.
  } else if (slot.state == Slot::State::kOut) {
    SetState(slot, Slot::State::kLostWorker);
  }
  if (slots_held_) WithdrawFrom(id);  // what comes later would wait for it
}

void JobSteps::WithdrawBackfill() {
  for (const auto& [id, slot] : slots_) {
    const bool placed = slot.state == Slot::State::kOut ||
                        slot.state == Slot::State::kLostWorker;
    if (placed && IsBackfillTurn(slot.turn)) return WithdrawFrom(id);
  }
}

// What comes before the first one that is placed anew stays where it is: none
// of it reads what comes later.
void JobSteps::Vacate(DeviceId device) {
  for (const auto& [id, slot] : slots_) {
    const bool lost = slot.state == Slot::State::kLostWorker;
    const bool waits = slot.state == Slot::State::kOut && !slot.started;
    if (slot.device == device && (lost || waits)) return WithdrawFrom(id);
  }
}

SlotId JobSteps::FirstSlotOf(uint64_t step_number) const {
  const auto first =
      std::find_if(slots_.begin(), slots_.end(), [&](const auto& entry) {
        return entry.second.place.step_number >= step_number;
      });
  return first == slots_.end() ? static_cast<SlotId>(~uint64_t{0})
                               : first->first;
}

SlotId JobSteps::FirstNotStarted() const {
  for (const auto& [id, slot] : slots_) {
    const bool runs = slot.state == Slot::State::kOut && slot.started;
    if (!runs && slot.state != Slot::State::kCommitted) return id;
  }
  return static_cast<SlotId>(~uint64_t{0});
}

void JobSteps::WithdrawFrom(SlotId first) {
  for (auto entry = slots_.rbegin();
       entry != slots_.rend() && entry->first >= first; ++entry) {
    Slot& slot = entry->second;
    if (slot.state == Slot::State::kOut) {
      SetState(slot, Slot::State::kWithdrawing);
      actions_.push_back(WithdrawSlotAction{job_, slot.id, slot.device});
    } else if (slot.state == Slot::State::kLostWorker) {
      Unplace(slot.id);
    }
  }
}

void JobSteps::Abandon() {
  ROUNDHOUSE_CHECK(!abandoning_);
  abandoning_ = true;
  if (!steps_.empty()) {
    abandoned_step_ = FirstToAbandon()->number;
    WithdrawFrom(FirstSlotOf(*abandoned_step_));
  }
}

// The newest one where all are reduced.  REQUIRES: there is a step.
std::deque<JobSteps::Step>::const_iterator JobSteps::FirstToAbandon() const {
  const auto first = std::find_if(
      steps_.begin(), steps_.end(),
      [](const Step& step) { return !step.reduced || !step.updates_allowed; });
  return first == steps_.end() ? std::prev(first) : first;
}

bool JobSteps::Updating() const {
  if (steps_.empty()) return false;
  const Step& newest = steps_.back();
  if (newest.spec.train && newest.reduced && newest.updates_allowed)
    return true;
  return std::any_of(FirstToAbandon(), steps_.end(), [](const Step& step) {
    return std::find(step.update_sent.begin(), step.update_sent.end(), true) !=
           step.update_sent.end();
  });
}

void JobSteps::FinishAbandoning() {
  if (abandoned_step_.has_value() && !AbandonedAreOut()) {
    // One may have ended: its last update was out already.
    while (!steps_.empty() && IsAbandoned(steps_.back().number)) {
      DropNewestStep();
    }
    abandoned_step_.reset();
  }
  if (!steps_.empty()) return;  // The older step's updates are still out.
  abandoning_ = false;
  actions_.push_back(QuietAction{job_});
}

bool JobSteps::AbandonedAreOut() const {
  const bool slot_out =
      std::any_of(slots_.begin(), slots_.end(), [&](const auto& entry) {
        const Slot& slot = entry.second;
        return IsAbandoned(slot.place.step_number) &&
               slot.state != Slot::State::kWaiting &&
               slot.state != Slot::State::kCommitted;
      });
  return slot_out ||
         std::any_of(sent_.host_ops().begin(), sent_.host_ops().end(),
                     [&](const SentWork::SentHostOp& op) {
                       return op.action.job == job_ &&
                              IsAbandoned(op.action.step_number);
                     });
}

void JobSteps::DropNewestStep() {
  const uint64_t number = steps_.back().number;
  std::erase_if(slots_, [&](const auto& entry) {
    return entry.second.place.step_number == number;
  });
  for (Round& round : rounds_) {
    if (round.step_number != number) continue;
    for (int layer = 0; layer < shape_.layer_count; ++layer) {
      FreeBlocks(round, layer);
    }
    round.boundaries.FreeAll(boundary_blocks_);
    std::erase_if(reducible_, [&](const auto& entry) {
      return entry.first == round.number;
    });
  }
  std::erase_if(
      rounds_, [&](const Round& round) { return round.step_number == number; });
  steps_.pop_back();
}

}  // namespace roundhouse
