#include "scheduler/dispatch/job_steps.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/turns.h"

namespace roundhouse {
namespace {

// Costs of layers that nobody has measured, in units of a guess.
constexpr double kGuessedForward = 1;
constexpr double kGuessedBackward = 3;  // recomputation included

}  // namespace

JobSteps::JobSteps(JobId job, const JobShape& shape, SentWork& sent,
                   std::vector<Action>& actions)
    : job_(job), shape_(shape), sent_(sent), actions_(actions) {
  ROUNDHOUSE_CHECK(shape.layer_count >= 1 &&
                   shape.unit_count == shape.layer_count + 1)
      << shape.layer_count << " layers, " << shape.unit_count << " units";
  ROUNDHOUSE_CHECK(shape.trainable.empty() ||
                   static_cast<int>(shape.trainable.size()) == shape.unit_count)
      << shape.trainable.size();
  ROUNDHOUSE_CHECK(shape.trainable_count() >= 1);
}

// --- building a step ---

uint64_t JobSteps::BeginStep(const StepSpec& spec) {
  ROUNDHOUSE_CHECK(!abandoning_);
  ROUNDHOUSE_CHECK(steps_.size() <= (shape_.stale ? 3 : 1)) << steps_.size();
  ROUNDHOUSE_CHECK(CheckPlan(spec.plan, shape_.layer_count).ok())
      << ToString(spec.plan);
  ROUNDHOUSE_CHECK(spec.plan.fused && !spec.round_micro_batches.empty());
  ROUNDHOUSE_CHECK(spec.groups >= 1) << spec.groups;
  ROUNDHOUSE_CHECK(!shape_.one_pass || !spec.train ||
                   (!spec.clip && spec.round_micro_batches.size() == 1))
      << spec.round_micro_batches.size();
  ROUNDHOUSE_CHECK(spec.layer_costs.empty() ||
                   static_cast<int>(spec.layer_costs.size()) ==
                       shape_.layer_count)
      << spec.layer_costs.size();
  auto boundaries = std::make_shared<const BoundaryMap>(
      MapOf(spec.plan, spec.train ? RoundKind::kTrain : RoundKind::kEvaluate,
            shape_.Trains(0) ? RowGradient::kRead : RowGradient::kUnread));
  ROUNDHOUSE_CHECK(spec.boundary_blocks >=
                   LeastBoundaryTensors(*boundaries) *
                       *std::max_element(spec.round_micro_batches.begin(),
                                         spec.round_micro_batches.end()))
      << spec.boundary_blocks << " blocks for " << ToString(spec.plan);
  boundary_blocks_.SetCount(spec.boundary_blocks);
  if (spec.train) {
    layer_blocks_.SetCount(spec.blocks.layers);
    head_blocks_.SetCount(spec.blocks.head);
  }
  Step step;
  step.number = next_step_++;
  step.spec = spec;
  step.boundaries = std::move(boundaries);
  step.rounds_left = static_cast<int>(spec.round_micro_batches.size());
  step.updates_allowed = !spec.clip;
  step.update_sent.assign(shape_.unit_count, false);
  step.updates_left = spec.train ? shape_.trainable_count() : 0;
  for (int i = 0; i < step.rounds_left; ++i) AddRound(step, i);
  steps_.push_back(std::move(step));
  return steps_.back().number;
}

void JobSteps::AddRound(const Step& step, int index) {
  Round round;
  round.number = next_round_++;
  round.step_number = step.number;
  round.index = index;
  const int sums = shape_.head_share() + 1;
  round.contributors_left.assign(sums, 0);
  round.readers_left.assign(sums, 0);
  round.reduce_sent.assign(sums, true);
  round.reduce_done.assign(sums, true);
  round.blocks.resize(shape_.layer_count);
  round.boundaries =
      RoundBoundaries(step.boundaries, step.spec.round_micro_batches[index]);
  for (int unit = 0; step.spec.train && unit < sums; ++unit) {
    if (!shape_.Trains(unit)) continue;
    round.reduce_sent[unit] = round.reduce_done[unit] = false;
    ++round.reduces_left;
  }
  AddSlots(step, round);
  rounds_.push_back(std::move(round));
}

// The units that wait for a slot: those of its layers, the embedding for the
// gradient of stage 0's input.
std::vector<int> JobSteps::UnitsOf(const Slot& slot) const {
  std::vector<int> units;
  if (slot.kind != SlotKind::kFused && slot.kind != SlotKind::kBackward) {
    return units;
  }
  const bool head = slot.layers.last == shape_.layer_count - 1;
  if (slot.layers.first == 0) units.push_back(0);
  for (int layer = slot.layers.first; layer <= slot.layers.last; ++layer) {
    units.push_back(1 + layer);
  }
  if (head) units.push_back(shape_.head_share());
  std::erase_if(units, [this](int unit) { return !shape_.Trains(unit); });
  return units;
}

SlotCost JobSteps::CostOf(const StepSpec& spec, const Slot& slot) {
  const bool guessed = spec.layer_costs.empty();
  const bool forward =
      slot.kind == SlotKind::kForward || slot.kind == SlotKind::kEvaluate;
  double of_one = 0;
  for (int layer = slot.layers.first; layer <= slot.layers.last; ++layer) {
    if (guessed) {
      of_one += forward ? kGuessedForward : kGuessedBackward;
    } else {
      of_one += forward ? spec.layer_costs[layer].forward_ns
                        : spec.layer_costs[layer].backward_ns;
    }
  }
  return {of_one * static_cast<double>(slot.micro_batches.size()), guessed};
}

void JobSteps::AddSlots(const Step& step, Round& round) {
  const StepSpec& spec = step.spec;
  const int micro_batches = spec.round_micro_batches[round.index];
  const StepPlan plan = PlanOfRound(spec.plan, micro_batches, spec.groups);
  int plan_slot = -1;
  int64_t layer_blocks = 0;  // of the plan's slot
  int64_t head_blocks = 0;
  SlotId first_part{};
  for (const Part& part : PartsOf(plan, micro_batches)) {
    if (!spec.train && part.kind == SlotKind::kBackward) break;
    const bool evaluate = !spec.train && part.kind == SlotKind::kFused;
    Slot slot;
    slot.id = sent_.NextSlotId();
    if (part.slot != plan_slot) {
      first_part = slot.id;
      layer_blocks = head_blocks = 0;
    }
    plan_slot = part.slot;
    slot.first_part = first_part;
    slot.wide = plan.shares[part.slot].size() > 1;
    slot.place = {step.number, round.index, static_cast<int>(round.number % 2),
                  round.slots_left++};
    slot.plan_slot = part.slot;
    slot.kind = evaluate ? SlotKind::kEvaluate : part.kind;
    slot.layers = part.layers;
    slot.micro_batches = part.micro_batches;
    slot.round_number = round.number;
    slot.cost = CostOf(spec, slot);
    if (spec.device_bytes) slot.device_bytes = spec.device_bytes(part);
    if (spec.train && part.backward()) slot.sums = part.contributions;
    layer_blocks += BlocksNeeded(slot, layer_blocks_);
    head_blocks += BlocksNeeded(slot, head_blocks_);
    ROUNDHOUSE_CHECK(layer_blocks <= layer_blocks_.count() &&
                     head_blocks <= head_blocks_.count())
        << "slot " << part.slot << " needs more blocks than "
        << layer_blocks_.count() << " and " << head_blocks_.count();
    slot.units = UnitsOf(slot);
    for (const int unit : slot.units) {
      ++round.contributors_left[unit];
      ++round.readers_left[unit];
    }
    ++round.slots_without_blocks;
    slots_.emplace_hint(slots_.end(), slot.id, std::move(slot));
  }
}

// --- events ---

void JobSteps::AllowUpdates(uint64_t step_number) {
  Step* step = FindStep(step_number);
  ROUNDHOUSE_CHECK(step != nullptr && step->reduced);
  step->updates_allowed = true;
}

void JobSteps::SkipUpdates(uint64_t step_number) {
  AllowUpdates(step_number);
  Step& step = *FindStep(step_number);
  ROUNDHOUSE_CHECK(step.spec.clip);  // none is sent
  step.skips_updates = true;
  step.updatable.clear();
}

void JobSteps::HoldUpdatesAfter(std::optional<uint64_t> step_number) {
  held_after_ = step_number;
}

JobSteps::Slot* JobSteps::Find(SlotId id) {
  const auto found = slots_.find(id);
  return found == slots_.end() ? nullptr : &found->second;
}

const JobSteps::Round& JobSteps::RoundOf(const Slot& slot) const {
  return *std::lower_bound(rounds_.begin(), rounds_.end(), slot.round_number,
                           [](const Round& round, uint64_t number) {
                             return round.number < number;
                           });
}

void JobSteps::SetState(Slot& slot, Slot::State state) {
  if (slot.state == Slot::State::kWithdrawing) --withdrawing_;
  if (state == Slot::State::kWithdrawing) ++withdrawing_;
  if (state == Slot::State::kWaiting) {
    first_waiting_ = std::min(first_waiting_, slot.id);
  }
  slot.state = state;
}

std::optional<SlotCost> JobSteps::SlotDone(SlotId id, int64_t compute_ns) {
  Slot* const slot = Find(id);
  if (slot == nullptr || (slot->state != Slot::State::kOut &&
                          slot->state != Slot::State::kWithdrawing)) {
    return std::nullopt;
  }
  sent_.Done(slot->device, id, compute_ns);
  SetState(*slot, Slot::State::kCommitted);
  CommitToRound(*slot);
  return slot->cost;
}

bool JobSteps::ContributionDown(SlotId id, int unit) {
  Slot* const slot = Find(id);
  if (slot == nullptr || (slot->state != Slot::State::kOut &&
                          slot->state != Slot::State::kWithdrawing)) {
    return false;
  }
  NoteContribution(*slot, unit);
  return true;
}

bool JobSteps::SlotWithdrawn(SlotId id) {
  const Slot* const slot = Find(id);
  if (slot == nullptr || slot->state != Slot::State::kWithdrawing) return false;
  Unplace(id);
  return true;
}

bool JobSteps::SlotStarted(SlotId id) {
  Slot* const slot = Find(id);
  if (slot == nullptr || slot->state != Slot::State::kOut) return false;
  // A backfill slot may stand still for long.
  slot->started = !IsBackfillTurn(slot->turn);
  return true;
}

void JobSteps::SendAgain(SlotId id) { Emit(slots_.at(id)); }

void JobSteps::SetTurn(SlotId id, uint64_t turn) {
  Slot& slot = slots_.at(id);
  slot.turn = turn;
  // One that is asked for may be too far to be given up.
  if (slot.state == Slot::State::kOut ||
      slot.state == Slot::State::kWithdrawing) {
    actions_.push_back(SetTurnAction{job_, id, slot.device, turn});
  }
}

void JobSteps::Unplace(SlotId id) {
  Slot& slot = slots_.at(id);
  sent_.Remove(slot.device, id);
  SetState(slot, Slot::State::kWaiting);
}

void JobSteps::HostOpDone(const RunHostOpAction& action) {
  const bool updates = action.kind == HostOpKind::kUpdate;
  if (updates) --FindStep(action.step_number)->updates_left;
  if (!action.reduces()) return;
  for (Round& round : rounds_) {
    if (round.step_number != action.step_number ||
        round.index != action.round) {
      continue;
    }
    for (const int unit : SumsOf(action)) SetReduced(round, unit);
    Step& step = *FindStep(action.step_number);
    if (!updates && MayUpdate(step, action.unit)) {
      step.updatable.insert(action.unit);
    }
  }
}

void JobSteps::SetReduced(Round& round, int unit) {
  round.reduce_done[unit] = true;
  --round.reduces_left;
  FreeBlocksOfUnit(round, unit);
  if (unit == 0) round.boundaries.CommitRowGradient(boundary_blocks_);
}

// --- deciding ---

void JobSteps::Settle() {
  FinishRounds();
  FinishSteps();
  if (abandoning_) FinishAbandoning();
}

std::optional<SentWork::SentSlot> JobSteps::NextSlot() const {
  if (withdrawing_ > 0 || slots_held_) return std::nullopt;
  auto next = slots_.lower_bound(first_waiting_);
  while (next != slots_.end() && next->second.state != Slot::State::kWaiting) {
    ++next;
  }
  if (next == slots_.end()) return std::nullopt;
  const Slot& slot = next->second;
  if (IsAbandoned(slot.place.step_number) || !MaySend(slot)) {
    return std::nullopt;
  }
  SentWork::SentSlot sent;
  sent.slot = slot.id;
  sent.job = job_;
  sent.first_part = slot.first_part;
  sent.wide = slot.wide;
  sent.cost = slot.cost;
  sent.device_bytes = slot.device_bytes;
  return sent;
}

void JobSteps::Send(const SentWork::SentSlot& sent, DeviceId device) {
  Slot& slot = slots_.at(sent.slot);
  first_waiting_ = sent.slot;  // no longer; none before it does
  slot.device = device;
  slot.turn = sent.turn;
  if (!slot.has_blocks) TakeBlocks(slot);
  sent_.Add(device, sent);
  Emit(slot);
}

bool JobSteps::SendHostOp() {
  // Gathers first: the first stage of a round waits for them.  Updates before
  // reductions: the next step's stages wait for those, but for the embedding's,
  // whose update and gather come before the other units' where those are
  // updated in one pass.
  return SendGather() || (shape_.one_pass && SendReduce()) || SendUpdate() ||
         SendReduce();
}

bool JobSteps::MaySend(const Slot& slot) const {
  for (const Round& round : rounds_) {
    if (round.number >= slot.round_number) break;
    if (round.number % 2 == slot.round_number % 2) return false;
  }
  if (slot.has_blocks) return true;
  const auto there = [&](const BlockPool& blocks) {
    return BlocksNeeded(slot, blocks) <= blocks.free();
  };
  return there(layer_blocks_) && there(head_blocks_) &&
         BoundariesNeeded(slot) <= boundary_blocks_.free();
}

void JobSteps::Emit(Slot& slot) {
  SetState(slot, Slot::State::kOut);
  slot.started = false;
  actions_.push_back(RunSlotAction{
      job_, slot.id, slot.device, slot.place, slot.kind, slot.layers,
      slot.micro_batches, slot.turn, slot.down, slot.blocks,
      RoundOf(slot).boundaries.OfSlot(slot.plan_slot, slot.micro_batches)});
}

void JobSteps::NoteContribution(Slot& slot, int unit) {
  const auto is = [&](const std::vector<int>& units) {
    return std::find(units.begin(), units.end(), unit) != units.end();
  };
  if (!is(slot.units) || is(slot.down)) return;
  slot.down.push_back(unit);
  Round& round = RoundOf(slot);
  if (--round.contributors_left[unit] == 0 && !shape_.OnePass(unit)) {
    reducible_.insert({round.number, unit});
  }
}

void JobSteps::CommitToRound(Slot& slot) {
  for (const int unit : slot.units) NoteContribution(slot, unit);
  Round& round = RoundOf(slot);
  round.boundaries.CommitSlot(slot.plan_slot, slot.micro_batches,
                              boundary_blocks_);
  --round.slots_left;
  Step& step = *FindStep(round.step_number);
  for (const int unit : slot.units) {
    --round.readers_left[unit];
    const int updated = unit == shape_.head_share() ? 0 : unit;
    if (MayUpdate(step, updated)) step.updatable.insert(updated);
  }
}

void JobSteps::FinishRounds() {
  while (!rounds_.empty() && rounds_.front().retired()) {
    const uint64_t number = rounds_.front().number;
    --FindStep(rounds_.front().step_number)->rounds_left;
    rounds_.pop_front();
    while (!slots_.empty() && slots_.begin()->second.round_number == number) {
      slots_.erase(slots_.begin());
    }
  }
}

void JobSteps::FinishSteps() {
  for (Step& step : steps_) {
    if (step.rounds_left != 0 || step.reduced) continue;
    if (IsAbandoned(step.number)) continue;
    step.reduced = true;
    if (step.spec.train)
      actions_.push_back(StepReducedAction{job_, step.number});
  }
  while (!steps_.empty() && steps_.front().reduced) {
    Step& step = steps_.front();
    // When its updates could be sent, and not before: steps end as they would
    // with them.
    if (step.skips_updates && !Held(step)) {
      step.update_sent.assign(shape_.unit_count, true);
      step.updates_left = 0;
    }
    if (step.updates_left != 0) break;
    actions_.push_back(StepDoneAction{job_, step.number});
    steps_.pop_front();
  }
}

JobSteps::Step* JobSteps::FindStep(uint64_t number) {
  for (Step& step : steps_) {
    if (step.number == number) return &step;
  }
  return nullptr;
}

}  // namespace roundhouse
