#include "scheduler/dispatch/test_world.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "base/turns.h"
#include "gtest/gtest.h"

namespace roundhouse {

World::World(const JobShape& shape, int devices, uint64_t seed)
    : shape_(shape), dispatcher_({}), random_(seed) {
  dispatcher_.AddJob(kJob, shape);
  dispatcher_.HostUp();
  for (int i = 0; i < devices; ++i) {
    dispatcher_.DeviceUp(static_cast<DeviceId>(i));
    queues_.emplace_back();
  }
  Take();
}

uint64_t World::Begin(StepSpec spec, JobId job) {
  if (spec.blocks == ContributionBlocks()) {
    spec.blocks = BlocksOf(
        spec.plan, static_cast<int64_t>(spec.round_micro_batches.size()),
        3 * static_cast<int>(queues_.size()));
  }
  if (spec.boundary_blocks == 0) {
    spec.boundary_blocks =
        BoundaryBlocksOf(spec, shape_, 3 * static_cast<int>(queues_.size()));
  }
  const uint64_t number = dispatcher_.BeginStep(job, spec);
  specs_[{job, number}] = spec;
  Take();
  return number;
}

bool World::StepOnce() {
  Events events;
  for (size_t d = 0; d < queues_.size(); ++d) AddDeviceEvents(d, events);
  if (!host_queue_.empty() && HostInputsReady(host_queue_.front())) {
    events.push_back([this] { FinishHostOp(); });
  }
  if (events.empty()) return false;
  events[random_() % events.size()]();
  Take();
  return true;
}

void World::RunToEnd() {
  while (StepOnce()) {
  }
}

void World::Crash(int device) {
  for (const RunSlotAction& slot : queues_[device]) {
    withdrawing_.erase(slot.slot);
  }
  for (const RunSlotAction& slot : queues_[device]) started_.erase(slot.slot);
  queues_[device].clear();
  computing_.erase(device);
  dispatcher_.DeviceDown(static_cast<DeviceId>(device));
  Take();
}

// What it computes, as far as the dispatcher knows, stays.
void World::Leave(int device) {
  const auto id = static_cast<DeviceId>(device);
  const auto computing = computing_.find(static_cast<size_t>(device));
  std::optional<SlotId> kept;
  if (computing != computing_.end()) {
    kept = queues_[device][computing->second].slot;
    if (started_.count(*kept) == 0 || withdrawing_.count(*kept) != 0) {
      kept.reset();
    }
  }
  leaving_.insert(id);
  dispatcher_.DeviceLeaves(id);
  Take();
  if (!kept.has_value()) return;
  EXPECT_EQ(withdrawing_.count(*kept), 0u);
}

void World::Stay(int device) {
  leaving_.erase(static_cast<DeviceId>(device));
  dispatcher_.DeviceStays(static_cast<DeviceId>(device));
  Take();
}

void World::LeaveForAWhile(std::mt19937_64& random, int device) {
  const auto go_on = [&] {
    for (uint64_t i = random() % 8; i > 0; --i) StepOnce();
  };
  Leave(device);
  go_on();
  if (random() % 2 == 0) return Stay(device);
  Crash(device);
  if (random() % 2 == 0) Lose(device);
  go_on();
  Respawn(device);
}

void World::Respawn(int device) {
  leaving_.erase(static_cast<DeviceId>(device));
  dispatcher_.DeviceUp(static_cast<DeviceId>(device));
  Take();
}

void World::Lose(int device) {
  dispatcher_.DeviceLost(static_cast<DeviceId>(device));
  Take();
}

void World::CrashHost() {
  host_queue_.clear();
  dispatcher_.HostDown();
  dispatcher_.HostUp();
  Take();
}

void World::Allow(uint64_t step) {
  dispatcher_.AllowUpdates(kJob, step);
  Take();
}

void World::HoldAfter(std::optional<uint64_t> step) {
  dispatcher_.HoldUpdatesAfter(kJob, step);
  Take();
}

void World::SetPriority(JobId job, Priority priority) {
  dispatcher_.SetPriority(job, priority);
  Take();
}

void World::HoldSlots(StartedSlots started, JobId job) {
  dispatcher_.HoldSlots(job, started);
  Take();
}

void World::ReleaseSlots(JobId job) {
  dispatcher_.ReleaseSlots(job);
  Take();
}

void World::Abandon(JobId job) {
  dispatcher_.Abandon(job);
  Take();
}

void World::Take() {
  if (taking_) return;  // the outer call goes on: actions stay in order
  taking_ = true;
  for (auto actions = dispatcher_.TakeActions(); !actions.empty();
       actions = dispatcher_.TakeActions()) {
    for (const Action& action : actions) {
      std::visit([this](const auto& a) { Execute(a); }, action);
    }
  }
  taking_ = false;
}

void World::Execute(const RunSlotAction& action) {
  auto& queue = queues_[Number(action.device)];
  queue.push_back(action);
  sent.push_back(action);
  EXPECT_EQ(leaving_.count(action.device), 0u);
  EXPECT_LE(queue.size(), 9u);
  const auto count = [&queue](uint64_t begin, uint64_t end) {
    return std::count_if(queue.begin(), queue.end(),
                         [&](const RunSlotAction& slot) {
                           return slot.turn >= begin && slot.turn < end;
                         });
  };
  if (IsBackfillTurn(action.turn)) {
    EXPECT_LE(count(kBackfillTurn, std::numeric_limits<uint64_t>::max()), 3);
  } else {
    EXPECT_LE(count(0, kBackfillTurn), 6);
    if (action.turn >= kNormalTurn) {
      EXPECT_LE(count(kNormalTurn, kBackfillTurn), 4);
    }
  }
  EXPECT_LE(std::count_if(queue.begin(), queue.end(),
                          [&](const RunSlotAction& slot) {
                            return slot.job == action.job;
                          }),
            3);
  EXPECT_EQ(committed_.count(action.slot), 0u) << "a committed slot ran again";
  if (action.kind == SlotKind::kFused || action.kind == SlotKind::kBackward) {
    CheckBlocks(action);
  }
  const std::set<int> down(action.units_down.begin(), action.units_down.end());
  EXPECT_EQ(down, units_down_[action.slot]);
}

void World::Execute(const WithdrawSlotAction& action) {
  withdrawing_.insert(action.slot);
}

void World::Execute(const SetTurnAction& action) {
  for (RunSlotAction& slot : queues_[Number(action.device)]) {
    if (slot.slot != action.slot) continue;
    EXPECT_LT(action.turn, slot.turn);
    EXPECT_EQ(IsBackfillTurn(action.turn), IsBackfillTurn(slot.turn));
    slot.turn = action.turn;
  }
}

void World::Execute(const RunHostOpAction& action) {
  host_ops.push_back(action);
  host_queue_.push_back(action);
}

void World::Execute(const StepReducedAction& action) {
  trace.push_back("reduced " + std::to_string(action.step_number));
  reduced_.insert({action.job, action.step_number});
  const StepSpec spec = specs_[{action.job, action.step_number}];
  if (action.job == kJob && skips.count(action.step_number) != 0) {
    dropped_.insert({action.job, action.step_number});
    dispatcher_.SkipUpdates(action.job, action.step_number);
  } else if (allow_updates && spec.clip) {
    dispatcher_.AllowUpdates(action.job, action.step_number);
  }
  if (begin_next_when_reduced) {
    begin_next_when_reduced = false;
    Begin(spec, action.job);
  }
  if (on_reduced) on_reduced();
}

void World::Execute(const StepDoneAction& action) {
  trace.push_back("done " + std::to_string(action.step_number));
  done_.insert({action.job, action.step_number});
  ++steps_done;
  done_of.push_back(Number(action.job));
}

void World::Execute(const QuietAction& action) {
  trace.push_back("quiet");
  ++quiet;
  for (const auto& [step, spec] : specs_) {
    if (step.first == action.job && done_.count(step) == 0) {
      dropped_.insert(step);
    }
  }
  std::erase_if(blocks_, [&](const auto& entry) {
    return dropped_.count({std::get<0>(entry.first), entry.second.step}) != 0;
  });
  // Nothing of it may be out any more.
  for (const auto& queue : queues_) {
    for (const RunSlotAction& slot : queue) EXPECT_NE(slot.job, action.job);
  }
  for (const RunHostOpAction& op : host_queue_) EXPECT_NE(op.job, action.job);
}

bool World::Produced(const RunSlotAction& slot, BoundaryValue value,
                     int boundary, IndexRange micro_batches) {
  for (int64_t m = micro_batches.begin; m < micro_batches.end; ++m) {
    if (produced_.count({slot.job, slot.place.step_number, slot.place.round,
                         value, boundary, m}) == 0) {
      return false;
    }
  }
  return true;
}

void World::Produce(const RunSlotAction& slot, int64_t micro_batch) {
  for (const SlotBoundaries::Output& output : slot.boundaries.outputs) {
    Write({slot.job, slot.place.step_number, slot.place.round, output.value,
           output.boundary, micro_batch},
          output.blocks.at(micro_batch - slot.micro_batches.begin));
  }
}

// A replay leaves alone what is behind a raised word.
void World::Write(const BoundaryKey& key, int block) {
  if (produced_.insert(key).second) memory_[{std::get<0>(key), block}] = key;
}

bool World::WeightsReady(JobId job, uint64_t step, int unit) {
  const uint64_t behind = shape_.stale ? 2 : 1;
  if (step < behind || !shape_.Trains(unit)) return true;
  const uint64_t before = step - behind;
  return !specs_[{job, before}].train || dropped_.count({job, before}) != 0 ||
         updates_of_[{job, before, unit}] != 0;
}

bool World::InputsReady(const RunSlotAction& slot, IndexRange micro_batches) {
  for (int layer = slot.layers.first; layer <= slot.layers.last; ++layer) {
    if (!WeightsReady(slot.job, slot.place.step_number, 1 + layer)) {
      return false;
    }
  }
  return Produced(slot, slot.boundaries.input, slot.layers.first,
                  micro_batches) &&
         (slot.kind != SlotKind::kBackward ||
          Produced(slot, BoundaryValue::kGradient, slot.layers.last + 1,
                   micro_batches));
}

void World::AddDeviceEvents(size_t d, Events& events) {
  const std::vector<RunSlotAction>& queue = queues_[d];
  if (queue.empty()) return;
  const auto computing = computing_.find(d);
  for (size_t i = queue.size(); i-- > 0;) {
    if (withdrawing_.count(queue[i].slot) == 0) continue;
    events.push_back([this, d, i] { AnswerWithdrawal(d, i); });
    if (random_() % 2 == 0) return;  // before it goes on
    break;
  }
  if (computing != computing_.end()) {
    const RunSlotAction& slot = queue[computing->second];
    if (InputsReady(slot, slot.micro_batches)) {
      events.push_back([this, d] { FinishSlot(d); });
      if (random_() % 4 == 0) events.push_back([this, d] { ProduceSome(d); });
      if (report_contributions) {
        events.push_back([this, d] { ReportContribution(d); });
      }
    }
    return;
  }
  std::set<JobId> older;
  bool oldest = true;
  for (size_t i = 0; i < queue.size(); ++i) {
    const RunSlotAction& slot = queue[i];
    const IndexRange first = {slot.micro_batches.begin,
                              slot.micro_batches.begin + 1};
    const bool backfill = IsBackfillTurn(slot.turn);
    const bool may_wait = !backfill && std::exchange(oldest, false);
    if (older.insert(slot.job).second &&
        InputsReady(slot, may_wait ? first : slot.micro_batches)) {
      events.push_back([this, d, i] { Compute(d, i); });
    }
  }
}

void World::Compute(size_t device, size_t index) {
  computing_[device] = index;
  if (random_() % 4 == 0) return;  // the news of it comes late
  const RunSlotAction& slot = queues_[device][index];
  if (!IsBackfillTurn(slot.turn)) started_.insert(slot.slot);
  dispatcher_.SlotStarted(slot.slot);
}

void World::Contribute(const RunSlotAction& slot, int unit) {
  for (int64_t m = slot.micro_batches.begin; m < slot.micro_batches.end; ++m) {
    contributed_.insert(
        {slot.job, slot.place.step_number, slot.place.round, unit, m});
  }
}

void World::ReportContribution(size_t device) {
  const RunSlotAction slot = queues_[device][computing_.at(device)];
  const std::vector<int> units = UnitsOf(slot);
  if (units.empty()) return;
  const int unit = units[random_() % units.size()];
  Contribute(slot, unit);
  // The embedding's is the gradient of its rows.
  for (int64_t m = slot.micro_batches.begin;
       unit == 0 && m < slot.micro_batches.end; ++m) {
    Produce(slot, m);
  }
  if (shape_.Trains(unit)) units_down_[slot.slot].insert(unit);
  dispatcher_.ContributionDown(slot.slot, unit);
}

// Its words are raised and it goes on: readers may end before it does.
void World::ProduceSome(size_t device) {
  const RunSlotAction& slot = queues_[device][computing_.at(device)];
  const int64_t end =
      slot.micro_batches.begin + 1 +
      static_cast<int64_t>(random_() %
                           static_cast<uint64_t>(slot.micro_batches.size()));
  for (int64_t m = slot.micro_batches.begin; m < end; ++m) Produce(slot, m);
}

void World::FinishSlot(size_t device) {
  const size_t index = computing_.at(device);
  const RunSlotAction slot = queues_[device][index];
  queues_[device].erase(queues_[device].begin() + index);
  computing_.erase(device);
  withdrawing_.erase(slot.slot);
  started_.erase(slot.slot);
  CheckInputs(slot);
  for (int64_t m = slot.micro_batches.begin; m < slot.micro_batches.end; ++m) {
    Produce(slot, m);
  }
  for (const int unit : UnitsOf(slot)) Contribute(slot, unit);
  units_down_.erase(slot.slot);
  EXPECT_TRUE(committed_.insert(slot.slot).second);
  const int64_t ns = slot.layers.layer_count() * slot.micro_batches.size() *
                     slot_ns[Number(slot.job)];
  served[Number(slot.job)] += ns;
  dispatcher_.SlotDone(slot.slot, ns);
}

void World::AnswerWithdrawal(size_t device, size_t index) {
  const RunSlotAction slot = queues_[device][index];
  queues_[device].erase(queues_[device].begin() + index);
  const auto computing = computing_.find(device);
  if (computing != computing_.end() && computing->second >= index) {
    if (computing->second-- == index) computing_.erase(computing);
  }
  withdrawing_.erase(slot.slot);
  started_.erase(slot.slot);
  dispatcher_.SlotWithdrawn(slot.slot);
}

bool World::HostInputsReady(const RunHostOpAction& op) {
  return op.kind != HostOpKind::kGather ||
         WeightsReady(op.job, op.step_number, 0);
}

void World::FinishHostOp() {
  const RunHostOpAction op = host_queue_.front();
  host_queue_.erase(host_queue_.begin());
  if (op.kind == HostOpKind::kGather) {
    ++gathers;
    const int count =
        specs_[{op.job, op.step_number}].round_micro_batches[op.round];
    EXPECT_EQ(op.row_blocks.size(), static_cast<size_t>(count));
    for (int64_t m = 0; m < count; ++m) {
      Write(
          {op.job, op.step_number, op.round, BoundaryValue::kActivation, 0, m},
          op.row_blocks.at(m));
    }
  } else if (op.kind == HostOpKind::kUpdate) {
    EXPECT_EQ(op.reduces(), shape_.OnePass(op.unit)) << "unit " << op.unit;
    if (op.reduces()) {
      CheckReduce(op);
      FreeBlocks(op);
    }
    CheckUpdate(op);
    ++updates[{op.step_number, op.unit}];
    ++updates_of_[{op.job, op.step_number, op.unit}];
  } else {
    EXPECT_FALSE(shape_.OnePass(op.unit)) << "unit " << op.unit;
    CheckReduce(op);
    FreeBlocks(op);
  }
  dispatcher_.HostOpDone(op.op);
}

}  // namespace roundhouse
