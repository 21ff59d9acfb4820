#include "scheduler/dispatch/dispatcher.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// Three decoder layers and the head; forward [0,1], fused [2,3], backward
// [1,1] [0,0]: four slots a round.
Plan TestPlan() { return {{{0, 1}}, {{2, 3}, {1, 1}, {0, 0}}, true}; }

const JobShape kShape = {4, 5, false, {}};
// Its decoder layers have adapters.
const JobShape kAdapterShape = {4, 5, false, {false, true, true, true, false}};

StepSpec TrainStep(int rounds, bool clip) {
  StepSpec spec;
  spec.clip = clip;
  spec.plan = TestPlan();
  spec.round_micro_batches.assign(rounds, 2);
  return spec;
}

constexpr JobId kJob{1};

// Executes actions as workers would: a device begins its oldest slot once the
// first micro-batch of what it reads is there, or the oldest of another job
// once all is, and a slot can finish only when all has been produced.  Checks
// the rules of the header on every event.
class World {
 public:
  World(const JobShape& shape, int devices, uint64_t seed)
      : shape_(shape), dispatcher_({}), random_(seed) {
    dispatcher_.AddJob(kJob, shape);
    dispatcher_.HostUp();
    for (int i = 0; i < devices; ++i) {
      dispatcher_.DeviceUp(static_cast<DeviceId>(i));
      queues_.emplace_back();
    }
    Take();
  }

  Dispatcher& dispatcher() { return dispatcher_; }

  uint64_t Begin(const StepSpec& spec, JobId job = kJob) {
    const uint64_t number = dispatcher_.BeginStep(job, spec);
    specs_[{job, number}] = spec;
    Take();
    return number;
  }

  // One random event that can happen now; false when none can.
  bool StepOnce() {
    std::vector<std::function<void()>> events;
    for (size_t d = 0; d < queues_.size(); ++d) AddDeviceEvents(d, events);
    if (!host_queue_.empty() && HostInputsReady(host_queue_.front())) {
      events.push_back([this] { FinishHostOp(); });
    }
    if (events.empty()) return false;
    events[random_() % events.size()]();
    Take();
    return true;
  }

  void RunToEnd() {
    while (StepOnce()) {
    }
  }

  void Crash(int device) {
    for (const RunSlotAction& slot : queues_[device]) {
      withdrawing_.erase(slot.slot);
    }
    queues_[device].clear();
    computing_.erase(device);
    dispatcher_.DeviceDown(static_cast<DeviceId>(device));
    Take();
  }

  void Respawn(int device) {
    dispatcher_.DeviceUp(static_cast<DeviceId>(device));
    Take();
  }

  void Lose(int device) {
    dispatcher_.DeviceLost(static_cast<DeviceId>(device));
    Take();
  }

  void CrashHost() {
    host_queue_.clear();
    dispatcher_.HostDown();
    dispatcher_.HostUp();
    Take();
  }

  void Allow(uint64_t step) {
    dispatcher_.AllowUpdates(kJob, step);
    Take();
  }

  void HoldAfter(std::optional<uint64_t> step) {
    dispatcher_.HoldUpdatesAfter(kJob, step);
    Take();
  }

  void Abandon(JobId job = kJob) {
    dispatcher_.Abandon(job);
    Take();
  }

  bool Idle(JobId job = kJob) { return dispatcher_.Idle(job); }
  bool Updating() { return dispatcher_.Updating(kJob); }

  std::vector<std::string> trace;
  std::vector<RunSlotAction> sent;
  int steps_done = 0;
  int quiet = 0;
  bool allow_updates = true;
  bool begin_next_when_reduced = false;
  std::map<std::pair<uint64_t, int>, int> updates;  // step, unit -> count
  std::vector<uint64_t> done_of;                    // jobs, as steps end
  std::map<uint64_t, int64_t> slot_ns = {{1, 1}, {2, 1}, {3, 1}};
  std::map<uint64_t, int64_t> served;

 private:
  void Take() {
    for (const Action& action : dispatcher_.TakeActions()) {
      std::visit([this](const auto& a) { Carry(a); }, action);
    }
  }

  void Carry(const RunSlotAction& action) {
    auto& queue = queues_[Number(action.device)];
    queue.push_back(action);
    sent.push_back(action);
    EXPECT_LE(queue.size(), 3u);
    EXPECT_LE(std::count_if(queue.begin(), queue.end(),
                            [&](const RunSlotAction& slot) {
                              return slot.job == action.job;
                            }),
              2);
    EXPECT_EQ(committed_.count(action.slot), 0u)
        << "a committed slot ran again";
    if (action.pass == SlotPass::kFused || action.pass == SlotPass::kBackward) {
      CheckContributions(action);
    }
  }
  // What the slot will write over has been reduced.
  void CheckContributions(const RunSlotAction& slot) {
    const int before = slot.place.round - shape_.contribution_sets;
    for (int layer = slot.layers.first; layer <= slot.layers.last; ++layer) {
      if (before < 0 || !shape_.Trains(1 + layer)) continue;
      EXPECT_EQ(
          reduces_.count({slot.job, slot.place.step_number, before, 1 + layer}),
          1u)
          << "unit " << 1 + layer << " of round " << before;
    }
  }
  void Carry(const WithdrawSlotAction& action) {
    withdrawing_.insert(action.slot);
  }
  void Carry(const RunHostOpAction& action) { host_queue_.push_back(action); }
  void Carry(const StepReducedAction& action) {
    trace.push_back("reduced " + std::to_string(action.step_number));
    reduced_.insert({action.job, action.step_number});
    const StepSpec spec = specs_[{action.job, action.step_number}];
    if (allow_updates && spec.clip) {
      dispatcher_.AllowUpdates(action.job, action.step_number);
    }
    if (begin_next_when_reduced) {
      begin_next_when_reduced = false;
      Begin(spec, action.job);
    }
    Take();
  }
  void Carry(const StepDoneAction& action) {
    trace.push_back("done " + std::to_string(action.step_number));
    ++steps_done;
    done_of.push_back(Number(action.job));
  }
  void Carry(const QuietAction& action) {
    trace.push_back("quiet");
    ++quiet;
    // Nothing of it may be out any more.
    for (const auto& queue : queues_) {
      for (const RunSlotAction& slot : queue) EXPECT_NE(slot.job, action.job);
    }
    for (const RunHostOpAction& op : host_queue_) EXPECT_NE(op.job, action.job);
  }

  // Of a boundary's activations, or gradients, of a micro-batch.
  using BoundaryKey = std::tuple<JobId, uint64_t, int, bool, int, int64_t>;
  bool Produced(const RunSlotAction& slot, bool gradient, int boundary,
                IndexRange micro_batches) {
    for (int64_t m = micro_batches.begin; m < micro_batches.end; ++m) {
      if (produced_.count({slot.job, slot.place.step_number, slot.place.round,
                           gradient, boundary, m}) == 0) {
        return false;
      }
    }
    return true;
  }
  void Produce(const RunSlotAction& slot, bool gradient, int boundary) {
    for (int64_t m = slot.micro_batches.begin; m < slot.micro_batches.end;
         ++m) {
      EXPECT_TRUE(produced_
                      .insert({slot.job, slot.place.step_number,
                               slot.place.round, gradient, boundary, m})
                      .second)
          << "micro-batch " << m << " ran twice";
    }
  }

  bool InputsReady(const RunSlotAction& slot, IndexRange micro_batches) {
    return Produced(slot, false, slot.layers.first, micro_batches) &&
           (slot.pass != SlotPass::kBackward ||
            Produced(slot, true, slot.layers.last + 1, micro_batches));
  }

  void AddDeviceEvents(size_t d, std::vector<std::function<void()>>& events) {
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
      }
      return;
    }
    std::set<JobId> older;
    for (size_t i = 0; i < queue.size(); ++i) {
      const RunSlotAction& slot = queue[i];
      const IndexRange first = {slot.micro_batches.begin,
                                slot.micro_batches.begin + 1};
      if (older.insert(slot.job).second &&
          InputsReady(slot, i == 0 ? first : slot.micro_batches)) {
        events.push_back([this, d, i] { computing_[d] = i; });
      }
    }
  }

  void FinishSlot(size_t device) {
    const size_t index = computing_.at(device);
    const RunSlotAction slot = queues_[device][index];
    queues_[device].erase(queues_[device].begin() + index);
    computing_.erase(device);
    withdrawing_.erase(slot.slot);
    const bool backward =
        slot.pass == SlotPass::kFused || slot.pass == SlotPass::kBackward;
    if (backward) {
      Produce(slot, true, slot.layers.first);
    } else {
      for (int b = slot.layers.first + 1; b <= slot.layers.last + 1; ++b) {
        Produce(slot, false, b);
      }
    }
    EXPECT_TRUE(committed_.insert(slot.slot).second);
    const int64_t ns = slot.layers.layer_count() * slot.micro_batches.size() *
                       slot_ns[Number(slot.job)];
    served[Number(slot.job)] += ns;
    dispatcher_.SlotDone(slot.slot, ns);
  }

  void AnswerWithdrawal(size_t device, size_t index) {
    const RunSlotAction slot = queues_[device][index];
    queues_[device].erase(queues_[device].begin() + index);
    const auto computing = computing_.find(device);
    if (computing != computing_.end() && computing->second >= index) {
      if (computing->second-- == index) computing_.erase(computing);
    }
    withdrawing_.erase(slot.slot);
    dispatcher_.SlotWithdrawn(slot.slot);
  }

  bool HostInputsReady(const RunHostOpAction& op) {
    if (op.type != HostOpType::kGather || op.step_number == 0) return true;
    // The embedding of the step before: published, unless that was dropped.
    const uint64_t before = op.step_number - 1;
    return !shape_.Trains(0) || !specs_[{op.job, before}].train ||
           reduced_.count({op.job, before}) == 0 ||
           updates_of_[{op.job, before, 0}] != 0;
  }

  void FinishHostOp() {
    const RunHostOpAction op = host_queue_.front();
    host_queue_.erase(host_queue_.begin());
    if (op.type == HostOpType::kGather) {
      const int count =
          specs_[{op.job, op.step_number}].round_micro_batches[op.round];
      for (int64_t m = 0; m < count; ++m) {
        produced_.insert({op.job, op.step_number, op.round, false, 0, m});
      }
    } else if (op.type == HostOpType::kUpdate) {
      EXPECT_TRUE(shape_.Trains(op.unit)) << "unit " << op.unit;
      ++updates[{op.step_number, op.unit}];
      ++updates_of_[{op.job, op.step_number, op.unit}];
    } else {
      CheckReduce(op);
    }
    dispatcher_.HostOpDone(op.op);
  }

  void CheckReduce(const RunHostOpAction& op) {
    EXPECT_TRUE(shape_.Trains(op.unit)) << "unit " << op.unit << " is frozen";
    EXPECT_TRUE(
        reduces_.insert({op.job, op.step_number, op.round, op.unit}).second);
    EXPECT_EQ(op.add_to_sum, op.round > 0);
    if (op.round > 0) {
      EXPECT_EQ(reduces_.count({op.job, op.step_number, op.round - 1, op.unit}),
                1u);
    }
    const int layer = std::max(op.unit - 1, 0);
    const int count =
        specs_[{op.job, op.step_number}].round_micro_batches[op.round];
    for (int64_t m = 0; m < count; ++m) {
      EXPECT_TRUE(Contributed(op, layer, m))
          << "unit " << op.unit << " has no gradient of micro-batch " << m;
    }
  }
  // The gradient of some boundary at or below a layer exists only when a slot
  // that holds the layer has committed.
  bool Contributed(const RunHostOpAction& op, int layer, int64_t micro_batch) {
    for (int boundary = 0; boundary <= layer; ++boundary) {
      if (produced_.count({op.job, op.step_number, op.round, true, boundary,
                           micro_batch}) != 0) {
        return true;
      }
    }
    return false;
  }

  const JobShape shape_;
  Dispatcher dispatcher_;
  std::mt19937_64 random_;
  std::map<std::pair<JobId, uint64_t>, StepSpec> specs_;
  std::vector<std::vector<RunSlotAction>> queues_;
  std::vector<RunHostOpAction> host_queue_;
  std::set<BoundaryKey> produced_;
  std::set<SlotId> committed_;
  std::set<SlotId> withdrawing_;
  std::set<std::pair<JobId, uint64_t>> reduced_;
  std::set<std::tuple<JobId, uint64_t, int, int>> reduces_;
  std::map<std::tuple<JobId, uint64_t, int>, int> updates_of_;
  std::map<size_t, size_t> computing_;  // device, place in its queue
};

TEST(DispatcherTest, SlotsGoRoundRobinAndCountOnOverSteps) {
  World world(kShape, 3, 1);
  world.Begin(TrainStep(1, false));
  world.RunToEnd();
  world.Begin(TrainStep(1, false));
  world.RunToEnd();
  ASSERT_EQ(world.sent.size(), 8u);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(Number(world.sent[i].device), i % 3) << i;
  }
  EXPECT_EQ(world.sent[0].pass, SlotPass::kForward);
  EXPECT_EQ(world.sent[1].pass, SlotPass::kFused);
  EXPECT_EQ(world.sent[1].layers, (LayerRange{2, 3}));
  EXPECT_EQ(world.sent[2].pass, SlotPass::kBackward);
  EXPECT_EQ(world.sent[4].place.buffer_set, 1);
  EXPECT_EQ(world.steps_done, 2);
}

TEST(DispatcherTest, LooksAheadTwoSlotsPerDeviceBeforeAnyInputExists) {
  World world(kShape, 1, 1);
  world.Begin(TrainStep(1, true));
  EXPECT_EQ(world.sent.size(), 2u);
  World wide(kShape, 4, 1);
  wide.Begin(TrainStep(1, true));
  EXPECT_EQ(wide.sent.size(), 4u);
}

// One stage, so that a round is one slot.
size_t SlotsSentAhead(int contribution_sets) {
  JobShape shape = kShape;
  shape.contribution_sets = contribution_sets;
  World world(shape, 2, 1);
  StepSpec spec = TrainStep(4, true);
  spec.plan = {{}, {{0, 3}}, true};
  world.Begin(spec);
  const size_t sent = world.sent.size();
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  EXPECT_EQ(world.sent.size(), 4u);
  return sent;
}

TEST(DispatcherTest, TwoContributionSetsLetTwoRoundsOfOneStageRunAtOnce) {
  EXPECT_EQ(SlotsSentAhead(1), 1u);
  EXPECT_EQ(SlotsSentAhead(2), 2u);
}

TEST(DispatcherTest, ClippedUpdatesWaitForTheCaller) {
  World world(kShape, 2, 3);
  world.allow_updates = false;
  const uint64_t step = world.Begin(TrainStep(2, true));
  world.RunToEnd();
  EXPECT_EQ(world.trace, std::vector<std::string>{"reduced 0"});
  EXPECT_TRUE(world.updates.empty());
  world.Allow(step);
  world.RunToEnd();
  EXPECT_EQ(world.updates.size(), 5u);
  EXPECT_EQ(world.steps_done, 1);
}

TEST(DispatcherTest, HeldUpdatesWaitWhileSlotsRunOn) {
  World world(kShape, 2, 4);
  world.begin_next_when_reduced = true;
  world.HoldAfter(world.Begin(TrainStep(1, false)));
  world.RunToEnd();
  EXPECT_EQ(world.trace,
            (std::vector<std::string>{"reduced 0", "done 0", "reduced 1"}));
  EXPECT_EQ(world.updates.size(), 5u);
  EXPECT_EQ(world.sent.size(), 8u);  // the next step ran under the hold
  world.HoldAfter(std::nullopt);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 2);
  EXPECT_EQ(world.updates.size(), 10u);
}

// What such a step gave was reported: giving it up would tear the job's record.
TEST(DispatcherTest, AStepWhoseUpdatesAreHeldIsUpdating) {
  for (const bool clip : {false, true}) {
    World world(kShape, 2, 6);
    world.HoldAfter(world.Begin(TrainStep(1, clip)));
    world.RunToEnd();
    EXPECT_FALSE(world.Updating());
    world.allow_updates = false;
    const uint64_t step = world.Begin(TrainStep(1, clip));
    world.RunToEnd();
    EXPECT_EQ(world.Updating(), !clip);
    if (clip) world.Allow(step);
    EXPECT_TRUE(world.Updating());
    EXPECT_EQ(world.updates.size(), 5u);
    world.HoldAfter(std::nullopt);
    world.RunToEnd();
    EXPECT_EQ(world.updates.size(), 10u);
  }
}

TEST(DispatcherTest, UnclippedUpdatesRunUnderLaterBackwardSlots) {
  World world(kShape, 1, 5);
  world.Begin(TrainStep(1, false));
  bool updated_before_last_slot = false;
  while (world.StepOnce()) {
    updated_before_last_slot |= !world.updates.empty() && world.trace.empty();
  }
  EXPECT_TRUE(updated_before_last_slot);
  EXPECT_EQ(world.updates.size(), 5u);
  EXPECT_EQ(world.steps_done, 1);
}

TEST(DispatcherTest, NextStepStartsUnderTheUpdates) {
  World world(kShape, 2, 7);
  world.begin_next_when_reduced = true;
  world.Begin(TrainStep(1, true));
  world.RunToEnd();
  EXPECT_EQ(world.trace, (std::vector<std::string>{"reduced 0", "done 0",
                                                   "reduced 1", "done 1"}));
  for (int unit = 0; unit < kShape.unit_count; ++unit) {
    EXPECT_EQ((world.updates[{0, unit}]), 1);
    EXPECT_EQ((world.updates[{1, unit}]), 1);
  }
}

TEST(DispatcherTest, FrozenUnitsAreNeitherReducedNorUpdatedNorWaitedFor) {
  for (const bool clip : {false, true}) {
    World world(kAdapterShape, 2, 8);
    world.begin_next_when_reduced = true;
    world.Begin(TrainStep(3, clip));
    world.RunToEnd();
    EXPECT_EQ(world.trace, (std::vector<std::string>{"reduced 0", "done 0",
                                                     "reduced 1", "done 1"}));
    EXPECT_EQ(world.updates.size(), 6u);
    for (int unit = 1; unit <= 3; ++unit) {
      EXPECT_EQ((world.updates[{0, unit}]), 1);
      EXPECT_EQ((world.updates[{1, unit}]), 1);
    }
  }
}

// Nothing that the next step gathers changes: under a hold of all updates it
// still begins.
TEST(DispatcherTest, WithAFrozenEmbeddingTheGatherWaitsForNoUpdate) {
  World world(kAdapterShape, 2, 4);
  world.HoldAfter(world.Begin(TrainStep(1, false)));
  world.RunToEnd();
  world.allow_updates = false;
  world.Begin(TrainStep(1, true));
  world.RunToEnd();
  ASSERT_EQ(world.trace.back(), "reduced 1");
  world.Begin(TrainStep(1, true));
  world.RunToEnd();
  EXPECT_EQ(world.trace.back(), "reduced 2");
  EXPECT_EQ(world.updates.size(), 3u);
}

TEST(DispatcherTest, AStepOfFrozenUnitsIsUpdatingOnlyOnceAnUpdateIsSent) {
  World world(kAdapterShape, 1, 5);
  world.allow_updates = false;
  const uint64_t step = world.Begin(TrainStep(1, true));
  world.RunToEnd();
  EXPECT_FALSE(world.Updating());
  world.Allow(step);
  EXPECT_TRUE(world.Updating());
}

TEST(DispatcherTest, AJobThatTrainsNothingIsABug) {
  Dispatcher dispatcher({});
  EXPECT_DEATH(dispatcher.AddJob(kJob, {1, 2, false, {false, false}}),
               "check failed");
}

TEST(DispatcherTest, EvaluationReducesNothing) {
  World world(kShape, 2, 9);
  StepSpec spec = TrainStep(3, false);
  spec.train = false;
  world.Begin(spec);
  world.RunToEnd();
  EXPECT_EQ(world.trace, std::vector<std::string>{"done 0"});
  EXPECT_EQ(world.sent.size(), 6u);
  EXPECT_EQ(world.sent[1].pass, SlotPass::kEvaluate);
  EXPECT_TRUE(world.updates.empty());
}

// The parts of a plan's slot, as (device, share).
using Parts = std::vector<std::pair<int, IndexRange>>;
Parts PartsOfSlot(const World& world, SlotPass pass, LayerRange layers,
                  int round = 0) {
  Parts parts;
  for (const RunSlotAction& slot : world.sent) {
    if (slot.pass == pass && slot.layers == layers &&
        slot.place.round == round) {
      parts.emplace_back(Number(slot.device), slot.micro_batches);
    }
  }
  return parts;
}

TEST(DispatcherTest, PartsOfAWideSlotGoToDevicesOfTheirOwn) {
  World world(kShape, 4, 21);
  StepSpec spec = TrainStep(2, true);
  spec.plan.split = {{2, 2}, {3, 1}, {1, 1, 1, 1}, {4}};
  spec.groups = 4;
  spec.round_micro_batches = {8, 3};
  world.Begin(spec);
  EXPECT_EQ(world.sent.size(), 8u);  // two a device
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  EXPECT_EQ(PartsOfSlot(world, SlotPass::kForward, {0, 1}),
            (Parts{{0, {0, 4}}, {1, {4, 8}}}));
  EXPECT_EQ(PartsOfSlot(world, SlotPass::kFused, {2, 3}),
            (Parts{{2, {0, 6}}, {3, {6, 8}}}));
  // Device 3 has less to do than 2 has.
  EXPECT_EQ(PartsOfSlot(world, SlotPass::kBackward, {1, 1}),
            (Parts{{0, {0, 2}}, {1, {2, 4}}, {3, {4, 6}}, {2, {6, 8}}}));
  EXPECT_EQ(PartsOfSlot(world, SlotPass::kBackward, {0, 0}),
            (Parts{{0, {0, 8}}}));
  // A round of three groups, cut in proportion.
  const auto expect_shares = [&](SlotPass pass, LayerRange layers,
                                 const std::vector<IndexRange>& shares) {
    std::set<int> devices;
    std::vector<IndexRange> found;
    for (const auto& [device, share] : PartsOfSlot(world, pass, layers, 1)) {
      devices.insert(device);
      found.push_back(share);
    }
    EXPECT_EQ(found, shares);
    EXPECT_EQ(devices.size(), shares.size());
  };
  expect_shares(SlotPass::kForward, {0, 1}, {{0, 2}, {2, 3}});
  expect_shares(SlotPass::kFused, {2, 3}, {{0, 2}, {2, 3}});
  expect_shares(SlotPass::kBackward, {1, 1}, {{0, 1}, {1, 2}, {2, 3}});
}

TEST(DispatcherTest, EvaluationsAreAsWideAsTheirPlan) {
  World world(kShape, 2, 22);
  StepSpec spec = TrainStep(1, false);
  spec.train = false;
  spec.plan.split = {{1, 1}, {1, 1}, {2}, {2}};
  spec.groups = 2;
  world.Begin(spec);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  EXPECT_EQ(world.sent.size(), 4u);
  EXPECT_EQ(PartsOfSlot(world, SlotPass::kEvaluate, {2, 3}),
            (Parts{{0, {0, 1}}, {1, {1, 2}}}));
}

// A plan that is wider than what is left.
TEST(DispatcherTest, PartsShareTheDevicesThatAreLeft) {
  World world(kShape, 4, 23);
  StepSpec spec = TrainStep(2, true);
  spec.plan.split.assign(4, {1, 1, 1, 1});
  spec.groups = 4;
  spec.round_micro_batches = {4, 4};
  world.Begin(spec);
  for (int device = 0; device < 3; ++device) {
    for (int i = 0; i < 3; ++i) world.StepOnce();
    world.Crash(device);
    world.Lose(device);
  }
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  EXPECT_TRUE(world.Idle());
  EXPECT_EQ(world.dispatcher().live_device_count(), 1);
}

TEST(DispatcherTest, RespawnedDeviceGetsItsSlotsAgainInOrder) {
  World world(kShape, 2, 11);
  world.Begin(TrainStep(1, true));
  ASSERT_EQ(world.sent.size(), 3u);  // the fused slot is long
  world.Crash(0);
  world.Respawn(0);
  ASSERT_EQ(world.sent.size(), 6u);
  EXPECT_EQ(Number(world.sent[3].device), 1);  // meanwhile
  EXPECT_EQ(world.sent[4].slot, world.sent[0].slot);
  EXPECT_EQ(world.sent[5].slot, world.sent[2].slot);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
}

TEST(DispatcherTest, LostDeviceWithdrawsAndPlacesAnew) {
  World world(kShape, 2, 13);
  world.Begin(TrainStep(1, true));
  world.Crash(0);
  world.Lose(0);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  EXPECT_EQ(world.dispatcher().live_device_count(), 1);
  EXPECT_EQ(Number(world.sent.back().device), 1);
}

TEST(DispatcherTest, LosingADeviceThatWasNeverUpChangesNothing) {
  World world(kShape, 2, 14);
  world.Begin(TrainStep(1, true));
  world.dispatcher().DeviceLost(static_cast<DeviceId>(7));
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  EXPECT_EQ(world.dispatcher().live_device_count(), 2);
}

TEST(DispatcherTest, AbandonDropsTheNewestStepOnly) {
  World world(kShape, 2, 15);
  world.begin_next_when_reduced = true;
  world.Begin(TrainStep(1, true));
  while (world.trace.empty()) ASSERT_TRUE(world.StepOnce());
  world.Abandon();
  world.RunToEnd();
  EXPECT_EQ(world.trace,
            (std::vector<std::string>{"reduced 0", "done 0", "quiet"}));
  EXPECT_EQ(world.updates.size(), 5u);
  world.Begin(TrainStep(1, true));
  world.RunToEnd();
  EXPECT_EQ(world.trace.back(), "done 2");
}

TEST(DispatcherTest, AbandonWithNothingRunningIsQuietAtOnce) {
  World world(kShape, 1, 17);
  world.Abandon();
  EXPECT_EQ(world.quiet, 1);
}

TEST(DispatcherTest, BeginningTwoUnreducedStepsIsABug) {
  World world(kShape, 1, 19);
  world.Begin(TrainStep(1, true));
  EXPECT_DEATH(world.Begin(TrainStep(1, true)), "check failed");
}

// --- several jobs ---

constexpr JobId kOther{2};

// One device that takes its slots by turns, a host worker that needs no time,
// and jobs that always have another round: who gets how much?
class OneDevice {
 public:
  OneDevice() {
    dispatcher_.HostUp();
    dispatcher_.DeviceUp(DeviceId{0});
  }
  void Add(JobId job, int64_t slot_ns) {
    JobShape shape = kShape;
    shape.contribution_sets = 2;
    dispatcher_.AddJob(job, shape);
    slot_ns_[job] = slot_ns;
    Begin(job);
  }
  void Run(int64_t ns) {
    for (const int64_t end = now_ + ns; now_ < end;) {
      Take();
      ASSERT_FALSE(queue_.empty());
      const auto next =
          std::min_element(queue_.begin(), queue_.end(),
                           [](const RunSlotAction& a, const RunSlotAction& b) {
                             return a.turn < b.turn;
                           });
      const RunSlotAction slot = *next;
      queue_.erase(next);
      now_ += slot_ns_[slot.job];
      served[slot.job] += slot_ns_[slot.job];
      dispatcher_.SlotDone(slot.slot, slot_ns_[slot.job]);
    }
  }

  std::map<JobId, int64_t> served;

 private:
  void Begin(JobId job) {
    StepSpec spec = TrainStep(8, false);
    spec.plan = {{}, {{0, 3}}, true};
    dispatcher_.BeginStep(job, spec);
  }
  void Take() {
    for (auto actions = dispatcher_.TakeActions(); !actions.empty();
         actions = dispatcher_.TakeActions()) {
      for (const Action& action : actions) {
        if (const auto* slot = std::get_if<RunSlotAction>(&action)) {
          queue_.push_back(*slot);
        } else if (const auto* op = std::get_if<RunHostOpAction>(&action)) {
          dispatcher_.HostOpDone(op->op);
        } else if (const auto* done = std::get_if<StepDoneAction>(&action)) {
          Begin(done->job);
        }
      }
    }
  }

  Dispatcher dispatcher_{DispatcherOptions{}};
  std::vector<RunSlotAction> queue_;
  std::map<JobId, int64_t> slot_ns_;
  int64_t now_ = 0;
};

TEST(DispatcherTest, JobsGetEqualComputeTimeHoweverLongTheirSlotsAre) {
  OneDevice device;
  device.Add(kJob, 10);
  device.Add(kOther, 70);
  device.Run(100000);
  EXPECT_NEAR(static_cast<double>(device.served[kJob]), 50000, 300);
}

TEST(DispatcherTest, AJobThatWasAwayIsOwedNothing) {
  OneDevice device;
  device.Add(kJob, 10);
  device.Run(100000);
  device.Add(kOther, 10);
  device.Run(10000);
  EXPECT_NEAR(static_cast<double>(device.served[kOther]), 5000, 100);
}

TEST(DispatcherTest, AJobThatWaitsLeavesEveryDeviceToTheOthers) {
  World world(kShape, 2, 32);
  world.dispatcher().AddJob(kOther, kShape);
  world.HoldAfter(world.Begin(TrainStep(1, false)));
  world.RunToEnd();
  world.Begin(TrainStep(1, false));
  world.RunToEnd();
  ASSERT_EQ(world.trace.back(), "reduced 1");  // and held
  for (int step = 0; step < 3; ++step) {
    world.Begin(TrainStep(2, true), kOther);
    world.RunToEnd();
    EXPECT_TRUE(world.Idle(kOther));
  }
  EXPECT_FALSE(world.Idle());
  world.HoldAfter(std::nullopt);
  world.RunToEnd();
  EXPECT_TRUE(world.Idle());
}

TEST(DispatcherTest, AbandoningOneJobLeavesTheOther) {
  World world(kShape, 2, 34);
  world.dispatcher().AddJob(kOther, kShape);
  world.Begin(TrainStep(2, true));
  world.Begin(TrainStep(2, true), kOther);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(world.StepOnce());
  world.Abandon();
  world.RunToEnd();
  EXPECT_EQ(world.quiet, 1);
  EXPECT_EQ(world.done_of, std::vector<uint64_t>{2});
  world.dispatcher().RemoveJob(kJob);
  EXPECT_FALSE(world.dispatcher().HasJob(kJob));
  world.Begin(TrainStep(1, true), kOther);
  world.RunToEnd();
  EXPECT_EQ(world.done_of.size(), 2u);
}

TEST(DispatcherTest, AJobGoesOnlyWhenNoDeviceHasASlotOfIt) {
  Dispatcher dispatcher({});
  dispatcher.AddJob(kJob, kShape);
  dispatcher.HostUp();
  dispatcher.DeviceUp(DeviceId{0});
  // A gather that was not answered is forgotten.
  StepSpec spec = TrainStep(1, true);
  dispatcher.BeginStep(kJob, spec);
  EXPECT_DEATH(dispatcher.RemoveJob(kJob), "check failed");
  dispatcher.DeviceDown(DeviceId{0});
  dispatcher.DeviceLost(DeviceId{0});
  HostOpId gather{};
  for (const Action& action : dispatcher.TakeActions()) {
    const auto* op = std::get_if<RunHostOpAction>(&action);
    if (op != nullptr) gather = op->op;
  }
  dispatcher.RemoveJob(kJob);
  dispatcher.HostOpDone(gather);
  EXPECT_TRUE(dispatcher.TakeActions().empty());
}

// One device, so that all host operations of a job can be sent at once.
TEST(DispatcherTest, TheHostWorkerServesJobsInTurns) {
  Dispatcher dispatcher({});
  for (const JobId job : {kJob, kOther}) {
    dispatcher.AddJob(job, kShape);
    dispatcher.BeginStep(job, TrainStep(2, true));
  }
  dispatcher.HostUp();
  std::vector<JobId> jobs;
  for (const Action& action : dispatcher.TakeActions()) {
    jobs.push_back(std::get<RunHostOpAction>(action).job);
  }
  EXPECT_EQ(jobs, (std::vector<JobId>{kJob, kOther, kJob, kOther}));
}

TEST(DispatcherTest, CostsDecideWhichDeviceIsFreeFirst) {
  World world(kShape, 2, 35);
  StepSpec spec = TrainStep(1, true);
  // Forward 8, fused 1 + 1, backward 1, backward 1: all but the first fit
  // beside it.
  spec.layer_costs = {{4, 0.5}, {0, 0.5}, {1, 0.5}, {1, 0.5}};
  world.Begin(spec);
  ASSERT_EQ(world.sent.size(), 3u);  // the third beside it; then that is full
  EXPECT_EQ(Number(world.sent[0].device), 0);
  EXPECT_EQ(Number(world.sent[1].device), 1);
  EXPECT_EQ(Number(world.sent[2].device), 1);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
}

Plan RandomPlan(std::mt19937_64& random, int layers) {
  Plan plan;
  plan.fused = true;
  auto cut = [&](int first, int last) {
    std::vector<LayerRange> stages;
    while (first <= last) {
      const int end = first + static_cast<int>(random() % (last - first + 1));
      stages.push_back({first, end});
      first = end + 1;
    }
    return stages;
  };
  const int fused_first = static_cast<int>(random() % layers);
  if (fused_first > 0) {
    plan.forward = cut(0, fused_first - 1);
    plan.backward = cut(0, fused_first - 1);
    std::reverse(plan.backward.begin(), plan.backward.end());
  }
  plan.backward.insert(plan.backward.begin(), {fused_first, layers - 1});
  return plan;
}

// Some plans are wider than there are devices.
void SplitAtRandom(std::mt19937_64& random, StepSpec& spec) {
  spec.groups = 1 + static_cast<int>(random() % 8);
  for (int& count : spec.round_micro_batches) {
    count = 1 + static_cast<int>(random() % 10);
  }
  for (int slot = 0; slot < spec.plan.slot_count(); ++slot) {
    std::vector<int>& parts = spec.plan.split.emplace_back();
    parts.resize(1 + random() % 6);
    for (int& part : parts) part = 1 + static_cast<int>(random() % 3);
  }
}

// Whatever dies, every step ends, every unit is updated exactly once per step,
// and no committed slot runs again.
TEST(DispatcherTest, RandomLossesNeverStopOrRepeatAStep) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int layers = 1 + static_cast<int>(random() % 7);
    const int devices = 1 + static_cast<int>(random() % 5);
    JobShape shape = {layers, layers + 1, random() % 2 == 0, {}};
    if (random() % 3 == 0) {
      shape.trainable.assign(layers + 1, false);
      shape.trainable[1 + random() % layers] = true;
      for (int unit = 1; unit <= layers; ++unit) {
        if (random() % 2 == 0) shape.trainable[unit] = true;
      }
    }
    shape.contribution_sets = 1 + static_cast<int>(random() % 2);
    World world(shape, devices, seed * 7);
    int lost = 0;
    for (int step = 0; step < 4; ++step) {
      StepSpec spec =
          TrainStep(1 + static_cast<int>(random() % 4), random() % 2 == 0);
      spec.plan = RandomPlan(random, layers);
      if (random() % 2 == 0) SplitAtRandom(random, spec);
      spec.train = random() % 4 != 0;
      world.begin_next_when_reduced = spec.train && random() % 2 == 0;
      const int done_before = world.steps_done;
      world.Begin(spec);
      while (world.StepOnce()) {
        const int live = devices - lost;
        if (random() % 16 == 0) {
          const int victim = lost + static_cast<int>(random() % live);
          world.Crash(victim);
          if (random() % 3 != 0) world.StepOnce();
          world.Respawn(victim);
        }
        if (random() % 16 == 0) world.CrashHost();
        if (random() % 64 == 0 && live > 1) {
          world.Crash(lost);
          if (random() % 2 == 0) world.StepOnce();
          world.Lose(lost++);
        }
      }
      ASSERT_GT(world.steps_done, done_before) << "stuck";
      ASSERT_TRUE(world.Idle()) << "stuck";
    }
    for (const auto& [key, count] : world.updates) {
      EXPECT_EQ(count, 1) << "step " << key.first << " unit " << key.second;
    }
  }
}

// The same with three jobs, which begin and end as they like.
TEST(DispatcherTest, RandomLossesNeverStopSeveralJobs) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int devices = 1 + static_cast<int>(random() % 5);
    World world(kShape, devices, seed * 7);
    world.dispatcher().AddJob(kOther, kShape);
    world.dispatcher().AddJob(JobId{3}, kShape);
    std::map<uint64_t, int> left = {{1, 3}, {2, 2}, {3, 4}};
    const auto begin = [&](uint64_t job) {
      if (left[job]-- == 0) return;
      StepSpec spec =
          TrainStep(1 + static_cast<int>(random() % 4), random() % 2 == 0);
      spec.plan = RandomPlan(random, 4);
      if (random() % 2 == 0) SplitAtRandom(random, spec);
      spec.train = random() % 4 != 0;
      for (int i = 0; i < 4 && random() % 2 == 0; ++i) {
        spec.layer_costs.resize(4);
        spec.layer_costs[i] = {static_cast<double>(random() % 9 + 1), 2};
      }
      world.Begin(spec, JobId{job});
    };
    for (uint64_t job = 1; job <= 3; ++job) begin(job);
    size_t seen = 0;
    int lost = 0;
    while (world.StepOnce()) {
      const int live = devices - lost;
      if (random() % 16 == 0) {
        const int victim = lost + static_cast<int>(random() % live);
        world.Crash(victim);
        for (uint64_t i = random() % 4; i > 0; --i) world.StepOnce();
        world.Respawn(victim);
      }
      if (random() % 16 == 0) world.CrashHost();
      if (random() % 64 == 0 && live > 1) {
        world.Crash(lost);
        if (random() % 2 == 0) world.StepOnce();
        world.Lose(lost++);
      }
      while (seen < world.done_of.size()) begin(world.done_of[seen++]);
    }
    EXPECT_EQ(world.steps_done, 9) << "stuck";
  }
}

TEST(DispatcherTest, RandomAbandonsAlwaysComeToRest) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int devices = 1 + static_cast<int>(random() % 4);
    World world(kShape, devices, seed);
    world.begin_next_when_reduced = random() % 2 == 0;
    StepSpec spec = TrainStep(2, random() % 2 == 0);
    if (random() % 2 == 0) SplitAtRandom(random, spec);
    world.Begin(spec);
    for (uint64_t i = random() % 60; i > 0; --i) world.StepOnce();
    // Torn weights are allowed too: a job that fails drops them.
    while (random() % 16 != 0 && world.Updating()) {
      ASSERT_TRUE(world.StepOnce());
    }
    world.Abandon();
    while (world.StepOnce()) {
      if (random() % 8 == 0) {
        const int victim = static_cast<int>(random() % devices);
        world.Crash(victim);
        world.Respawn(victim);
      }
    }
    EXPECT_EQ(world.quiet, 1);
    EXPECT_TRUE(world.Idle());
    world.begin_next_when_reduced = false;
    const int done = world.steps_done;
    world.Begin(TrainStep(1, true));
    world.RunToEnd();
    EXPECT_EQ(world.steps_done, done + 1);
  }
}

}  // namespace
}  // namespace roundhouse
