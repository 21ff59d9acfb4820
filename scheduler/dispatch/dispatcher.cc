#include "scheduler/dispatch/dispatcher.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace roundhouse {

Dispatcher::Dispatcher(const JobShape& shape, const DispatcherOptions& options)
    : shape_(shape), options_(options) {
  ROUNDHOUSE_CHECK(shape.layer_count >= 1 &&
                   shape.unit_count == shape.layer_count + 1)
      << shape.layer_count << " layers, " << shape.unit_count << " units";
  ROUNDHOUSE_CHECK(shape.trainable.empty() ||
                   static_cast<int>(shape.trainable.size()) == shape.unit_count)
      << shape.trainable.size();
  ROUNDHOUSE_CHECK(shape.trainable_count() >= 1);
  ROUNDHOUSE_CHECK(shape.contribution_sets == 1 || shape.contribution_sets == 2)
      << shape.contribution_sets;
  ROUNDHOUSE_CHECK(options.max_dispatched_slots >= 1 &&
                   options.max_host_ops >= 1);
}

// --- building a step ---

uint64_t Dispatcher::BeginStep(const StepSpec& spec) {
  ROUNDHOUSE_CHECK(!abandoning_);
  ROUNDHOUSE_CHECK(steps_.size() <= 1 &&
                   (steps_.empty() || steps_.front().reduced));
  ROUNDHOUSE_CHECK(CheckPlan(spec.plan, shape_.layer_count).ok())
      << ToString(spec.plan);
  ROUNDHOUSE_CHECK(spec.plan.fused && !spec.round_micro_batches.empty());
  ROUNDHOUSE_CHECK(spec.groups >= 1) << spec.groups;
  Step step;
  step.number = next_step_++;
  step.spec = spec;
  step.rounds_left = static_cast<int>(spec.round_micro_batches.size());
  step.updates_allowed = !spec.clip;
  step.update_sent.assign(shape_.unit_count, false);
  step.updates_left = spec.train ? shape_.trainable_count() : 0;
  steps_.push_back(step);
  for (int i = 0; i < step.rounds_left; ++i) AddRound(step, i);
  Pump();
  return step.number;
}

void Dispatcher::AddRound(const Step& step, int index) {
  Round round;
  round.number = next_round_++;
  round.step_number = step.number;
  round.index = index;
  round.contributors_left.assign(shape_.unit_count, 0);
  round.reduce_sent.assign(shape_.unit_count, true);
  round.reduce_done.assign(shape_.unit_count, true);
  for (int unit = 0; step.spec.train && unit < shape_.unit_count; ++unit) {
    if (!shape_.Trains(unit)) continue;
    round.reduce_sent[unit] = round.reduce_done[unit] = false;
    ++round.reduces_left;
  }
  AddSlots(step, round);
  rounds_.push_back(std::move(round));
}

// The units that wait for a slot: those of its layers; the embedding for the
// gradient of stage 0's input and, when tied, for the head.
std::vector<int> Dispatcher::UnitsOf(const Slot& slot) const {
  std::vector<int> units;
  if (slot.pass != SlotPass::kFused && slot.pass != SlotPass::kBackward) {
    return units;
  }
  const bool head = slot.layers.last == shape_.layer_count - 1;
  if (slot.layers.first == 0 || (head && shape_.tied_head)) units.push_back(0);
  for (int layer = slot.layers.first; layer <= slot.layers.last; ++layer) {
    units.push_back(1 + layer);
  }
  std::erase_if(units, [this](int unit) { return !shape_.Trains(unit); });
  return units;
}

void Dispatcher::AddSlots(const Step& step, Round& round) {
  const int micro_batches = step.spec.round_micro_batches[round.index];
  const StepPlan plan =
      PlanOfRound(step.spec.plan, micro_batches, step.spec.groups);
  for (const Part& part : PartsOf(plan, micro_batches)) {
    if (!step.spec.train && part.pass == SlotPass::kBackward) break;
    const bool evaluate = !step.spec.train && part.pass == SlotPass::kFused;
    Slot slot;
    slot.id = static_cast<SlotId>(next_slot_++);
    slot.place = {step.number, round.index, static_cast<int>(round.number % 2),
                  round.slots_left++};
    slot.pass = evaluate ? SlotPass::kEvaluate : part.pass;
    slot.layers = part.layers;
    slot.micro_batches = part.micro_batches;
    slot.round_number = round.number;
    for (int unit : UnitsOf(slot)) ++round.contributors_left[unit];
    slots_.emplace(slot.id, slot);
  }
}

// --- events ---

void Dispatcher::AllowUpdates(uint64_t step_number) {
  Step* step = FindStep(step_number);
  ROUNDHOUSE_CHECK(step != nullptr && step->reduced);
  step->updates_allowed = true;
  Pump();
}

void Dispatcher::HoldUpdatesAfter(std::optional<uint64_t> step_number) {
  held_after_ = step_number;
  Pump();
}

void Dispatcher::DeviceUp(DeviceId device) {
  Device& state = devices_[device];
  ROUNDHOUSE_CHECK(!state.up) << "device " << Number(device) << " is up";
  state.up = true;
  if (std::find(ring_.begin(), ring_.end(), device) == ring_.end()) {
    ring_.insert(std::upper_bound(ring_.begin(), ring_.end(), device), device);
  }
  const std::vector<SlotId> again = std::exchange(state.out, {});
  for (SlotId id : again) Send(slots_.at(id), device);
  Pump();
}

void Dispatcher::DeviceDown(DeviceId device) {
  Device& state = devices_.at(device);
  ROUNDHOUSE_CHECK(state.up) << "device " << Number(device) << " is down";
  state.up = false;
  const std::vector<SlotId> out = state.out;
  for (SlotId id : out) {
    Slot& slot = slots_.at(id);
    if (slot.state == Slot::State::kWithdrawing) {
      AfterWithdrawal(slot);  // Its process is gone: nothing more comes.
    } else {
      slot.state = Slot::State::kLostWorker;
    }
  }
  Pump();
}

void Dispatcher::DeviceLost(DeviceId device) {
  const auto found = devices_.find(device);
  if (found == devices_.end()) return;  // It has never been up for this job.
  Device& state = found->second;
  ROUNDHOUSE_CHECK(!state.up);
  ring_.erase(std::find(ring_.begin(), ring_.end(), device));
  const std::vector<SlotId> out = state.out;
  for (SlotId id : out) AfterWithdrawal(slots_.at(id));
  WithdrawOut(0);
  Pump();
}

void Dispatcher::SlotDone(SlotId id) {
  const auto found = slots_.find(id);
  if (found == slots_.end()) return;
  Slot& slot = found->second;
  if (slot.state != Slot::State::kOut &&
      slot.state != Slot::State::kWithdrawing) {
    return;
  }
  Forget(slot.device, id);
  slot.state = Slot::State::kCommitted;
  CommitToRound(slot);
  Pump();
}

void Dispatcher::SlotWithdrawn(SlotId id) {
  const auto found = slots_.find(id);
  if (found == slots_.end() ||
      found->second.state != Slot::State::kWithdrawing) {
    return;
  }
  AfterWithdrawal(found->second);
  Pump();
}

void Dispatcher::HostUp() {
  ROUNDHOUSE_CHECK(!host_up_);
  host_up_ = true;
  for (SentHostOp& op : host_ops_) {
    op.out = true;
    actions_.push_back(op.action);
  }
  Pump();
}

void Dispatcher::HostDown() {
  host_up_ = false;
  for (SentHostOp& op : host_ops_) op.out = false;
}

void Dispatcher::HostOpDone(HostOpId id) {
  const auto found =
      std::find_if(host_ops_.begin(), host_ops_.end(),
                   [&](const SentHostOp& op) { return op.action.op == id; });
  if (found == host_ops_.end() || !found->out) return;
  const RunHostOpAction action = found->action;
  host_ops_.erase(found);
  if (action.type == HostOpType::kUpdate) {
    --FindStep(action.step_number)->updates_left;
  }
  for (Round& round : rounds_) {
    if (action.type != HostOpType::kReduce ||
        round.step_number != action.step_number ||
        round.index != action.round) {
      continue;
    }
    round.reduce_done[action.unit] = true;
    --round.reduces_left;
  }
  Pump();
}

void Dispatcher::Abandon() {
  ROUNDHOUSE_CHECK(!abandoning_);
  abandoning_ = true;
  if (!steps_.empty()) {
    abandoned_step_ = steps_.back().number;
    WithdrawOut(*abandoned_step_);
  }
  Pump();
}

bool Dispatcher::Updating() const {
  if (steps_.empty()) return false;
  const Step& step = steps_.back();
  const bool held = step.spec.train && step.reduced && step.updates_allowed;
  return held || std::find(step.update_sent.begin(), step.update_sent.end(),
                           true) != step.update_sent.end();
}

std::vector<Action> Dispatcher::TakeActions() {
  return std::exchange(actions_, {});
}

bool Dispatcher::IsCommitted(SlotId id) const {
  const auto found = slots_.find(id);
  return found == slots_.end() ? Number(id) < next_slot_
                               : found->second.state == Slot::State::kCommitted;
}

// --- deciding ---

void Dispatcher::Pump() {
  FinishRounds();
  FinishSteps();
  if (abandoning_) FinishAbandoning();
  SendSlots();
  SendHostOps();
}

void Dispatcher::SendSlots() {
  if (ring_.empty() || AnyWithdrawing()) return;
  for (auto& [id, slot] : slots_) {
    if (slot.state != Slot::State::kWaiting) continue;
    if (abandoned_step_ == slot.place.step_number) return;
    const DeviceId device = ring_[next_position_ % ring_.size()];
    const Device& state = devices_.at(device);
    const bool full =
        static_cast<int>(state.out.size()) >= options_.max_dispatched_slots;
    if (!state.up || full || !MaySend(slot)) return;
    ++next_position_;
    Send(slot, device);
  }
}

bool Dispatcher::MaySend(const Slot& slot) const {
  const std::vector<int> units = UnitsOf(slot);
  for (const Round& round : rounds_) {
    if (round.number >= slot.round_number) break;
    if (round.number % 2 == slot.round_number % 2) return false;
    if (shape_.contribution_sets == 2) continue;
    for (int unit : units) {
      if (!round.reduce_done[unit]) return false;
    }
  }
  return true;
}

void Dispatcher::Send(Slot& slot, DeviceId device) {
  slot.state = Slot::State::kOut;
  slot.device = device;
  devices_.at(device).out.push_back(slot.id);
  actions_.push_back(RunSlotAction{slot.id, device, slot.place, slot.pass,
                                   slot.layers, slot.micro_batches});
}

void Dispatcher::CommitToRound(const Slot& slot) {
  for (Round& round : rounds_) {
    if (round.number != slot.round_number) continue;
    --round.slots_left;
    for (int unit : UnitsOf(slot)) --round.contributors_left[unit];
  }
}

void Dispatcher::FinishRounds() {
  while (!rounds_.empty() && rounds_.front().retired()) {
    const uint64_t number = rounds_.front().number;
    --FindStep(rounds_.front().step_number)->rounds_left;
    rounds_.pop_front();
    std::erase_if(slots_, [&](const auto& entry) {
      return entry.second.round_number == number;
    });
  }
}

void Dispatcher::FinishSteps() {
  for (Step& step : steps_) {
    if (step.rounds_left != 0 || step.reduced) continue;
    if (abandoned_step_ == step.number) continue;
    step.reduced = true;
    if (step.spec.train) actions_.push_back(StepReducedAction{step.number});
  }
  while (!steps_.empty() && steps_.front().reduced &&
         steps_.front().updates_left == 0) {
    actions_.push_back(StepDoneAction{steps_.front().number});
    steps_.pop_front();
  }
}

// --- losses ---

void Dispatcher::WithdrawOut(uint64_t first_step_number) {
  for (auto entry = slots_.rbegin(); entry != slots_.rend(); ++entry) {
    Slot& slot = entry->second;
    if (slot.place.step_number < first_step_number) continue;
    if (slot.state == Slot::State::kOut) {
      slot.state = Slot::State::kWithdrawing;
      actions_.push_back(WithdrawSlotAction{slot.id, slot.device});
    } else if (slot.state == Slot::State::kLostWorker) {
      AfterWithdrawal(slot);
    }
  }
}

void Dispatcher::AfterWithdrawal(Slot& slot) {
  Forget(slot.device, slot.id);
  slot.state = Slot::State::kWaiting;
}

bool Dispatcher::AnyWithdrawing() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const auto& entry) {
    return entry.second.state == Slot::State::kWithdrawing;
  });
}

void Dispatcher::FinishAbandoning() {
  if (abandoned_step_.has_value() && !StepIsOut(*abandoned_step_)) {
    // It may have ended: its last update was out already.
    if (FindStep(*abandoned_step_) != nullptr) DropNewestStep();
    abandoned_step_.reset();
  }
  if (!steps_.empty()) return;  // The older step's updates are still out.
  abandoning_ = false;
  actions_.push_back(QuietAction{});
}

bool Dispatcher::StepIsOut(uint64_t number) const {
  const bool slot_out =
      std::any_of(slots_.begin(), slots_.end(), [&](const auto& entry) {
        const Slot& slot = entry.second;
        return slot.place.step_number == number &&
               slot.state != Slot::State::kWaiting &&
               slot.state != Slot::State::kCommitted;
      });
  return slot_out || std::any_of(host_ops_.begin(), host_ops_.end(),
                                 [&](const SentHostOp& op) {
                                   return op.action.step_number == number;
                                 });
}

void Dispatcher::DropNewestStep() {
  const uint64_t number = steps_.back().number;
  std::erase_if(slots_, [&](const auto& entry) {
    return entry.second.place.step_number == number;
  });
  std::erase_if(
      rounds_, [&](const Round& round) { return round.step_number == number; });
  steps_.pop_back();
}

void Dispatcher::Forget(DeviceId device, SlotId slot) {
  std::erase(devices_.at(device).out, slot);
}

Dispatcher::Step* Dispatcher::FindStep(uint64_t number) {
  for (Step& step : steps_) {
    if (step.number == number) return &step;
  }
  return nullptr;
}

}  // namespace roundhouse
