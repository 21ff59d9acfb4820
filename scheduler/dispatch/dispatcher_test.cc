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

// Executes actions as workers would: a device runs its slots in order, and a
// slot can finish only when what it reads of each of its micro-batches has been
// produced.  Checks the rules of the header on every event.
class World {
 public:
  World(const JobShape& shape, int devices, uint64_t seed)
      : shape_(shape), dispatcher_(shape, {}), random_(seed) {
    dispatcher_.HostUp();
    for (int i = 0; i < devices; ++i) {
      dispatcher_.DeviceUp(static_cast<DeviceId>(i));
      queues_.emplace_back();
    }
    Take();
  }

  Dispatcher& dispatcher() { return dispatcher_; }

  uint64_t Begin(const StepSpec& spec) {
    const uint64_t number = dispatcher_.BeginStep(spec);
    specs_[number] = spec;
    Take();
    return number;
  }

  // One random event that can happen now; false when none can.
  bool StepOnce() {
    std::vector<std::function<void()>> events;
    for (size_t d = 0; d < queues_.size(); ++d) {
      if (queues_[d].empty()) continue;
      if (withdrawing_.count(queues_[d].back().slot) != 0) {
        events.push_back([this, d] { AnswerWithdrawal(d); });
      }
      if (InputsReady(queues_[d].front())) {
        events.push_back([this, d] { FinishSlot(d); });
      }
    }
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
    dispatcher_.AllowUpdates(step);
    Take();
  }

  void HoldAfter(std::optional<uint64_t> step) {
    dispatcher_.HoldUpdatesAfter(step);
    Take();
  }

  void Abandon() {
    dispatcher_.Abandon();
    Take();
  }

  std::vector<std::string> trace;
  std::vector<RunSlotAction> sent;
  int steps_done = 0;
  int quiet = 0;
  bool allow_updates = true;
  bool begin_next_when_reduced = false;
  std::map<std::pair<uint64_t, int>, int> updates;  // step, unit -> count

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
    EXPECT_LE(queue.size(), 2u);
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
      EXPECT_EQ(reduces_.count({slot.place.step_number, before, 1 + layer}), 1u)
          << "unit " << 1 + layer << " of round " << before;
    }
  }
  void Carry(const WithdrawSlotAction& action) {
    withdrawing_.insert(action.slot);
  }
  void Carry(const RunHostOpAction& action) { host_queue_.push_back(action); }
  void Carry(const StepReducedAction& action) {
    trace.push_back("reduced " + std::to_string(action.step_number));
    reduced_.insert(action.step_number);
    if (allow_updates && specs_[action.step_number].clip) {
      dispatcher_.AllowUpdates(action.step_number);
    }
    if (begin_next_when_reduced) {
      begin_next_when_reduced = false;
      Begin(specs_[action.step_number]);
    }
    Take();
  }
  void Carry(const StepDoneAction& action) {
    trace.push_back("done " + std::to_string(action.step_number));
    ++steps_done;
  }
  void Carry(const QuietAction&) {
    trace.push_back("quiet");
    ++quiet;
    // Nothing may be out any more.
    for (const auto& queue : queues_) EXPECT_TRUE(queue.empty());
    EXPECT_TRUE(host_queue_.empty());
  }

  // Of a boundary's activations, or gradients, of a micro-batch.
  using BoundaryKey = std::tuple<uint64_t, int, bool, int, int64_t>;
  bool Produced(const RunSlotAction& slot, bool gradient, int boundary) {
    for (int64_t m = slot.micro_batches.begin; m < slot.micro_batches.end;
         ++m) {
      if (produced_.count({slot.place.step_number, slot.place.round, gradient,
                           boundary, m}) == 0) {
        return false;
      }
    }
    return true;
  }
  void Produce(const RunSlotAction& slot, bool gradient, int boundary) {
    for (int64_t m = slot.micro_batches.begin; m < slot.micro_batches.end;
         ++m) {
      EXPECT_TRUE(produced_
                      .insert({slot.place.step_number, slot.place.round,
                               gradient, boundary, m})
                      .second)
          << "micro-batch " << m << " ran twice";
    }
  }

  bool InputsReady(const RunSlotAction& slot) {
    if (withdrawing_.count(slot.slot) != 0 && random_() % 2 == 0) return false;
    return Produced(slot, false, slot.layers.first) &&
           (slot.pass != SlotPass::kBackward ||
            Produced(slot, true, slot.layers.last + 1));
  }

  void FinishSlot(size_t device) {
    const RunSlotAction slot = queues_[device].front();
    queues_[device].erase(queues_[device].begin());
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
    dispatcher_.SlotDone(slot.slot);
  }

  void AnswerWithdrawal(size_t device) {
    const RunSlotAction slot = queues_[device].back();
    queues_[device].pop_back();
    withdrawing_.erase(slot.slot);
    dispatcher_.SlotWithdrawn(slot.slot);
  }

  bool HostInputsReady(const RunHostOpAction& op) {
    if (op.type != HostOpType::kGather || op.step_number == 0) return true;
    // The embedding of the step before: published, unless that was dropped.
    const uint64_t before = op.step_number - 1;
    return !shape_.Trains(0) || !specs_[before].train ||
           reduced_.count(before) == 0 || updates.count({before, 0}) != 0;
  }

  void FinishHostOp() {
    const RunHostOpAction op = host_queue_.front();
    host_queue_.erase(host_queue_.begin());
    if (op.type == HostOpType::kGather) {
      const int count = specs_[op.step_number].round_micro_batches[op.round];
      for (int64_t m = 0; m < count; ++m) {
        produced_.insert({op.step_number, op.round, false, 0, m});
      }
    } else if (op.type == HostOpType::kUpdate) {
      EXPECT_TRUE(shape_.Trains(op.unit)) << "unit " << op.unit;
      ++updates[{op.step_number, op.unit}];
    } else {
      CheckReduce(op);
    }
    dispatcher_.HostOpDone(op.op);
  }

  void CheckReduce(const RunHostOpAction& op) {
    EXPECT_TRUE(shape_.Trains(op.unit)) << "unit " << op.unit << " is frozen";
    EXPECT_TRUE(reduces_.insert({op.step_number, op.round, op.unit}).second);
    EXPECT_EQ(op.add_to_sum, op.round > 0);
    if (op.round > 0) {
      EXPECT_EQ(reduces_.count({op.step_number, op.round - 1, op.unit}), 1u);
    }
    const int layer = std::max(op.unit - 1, 0);
    const int count = specs_[op.step_number].round_micro_batches[op.round];
    for (int64_t m = 0; m < count; ++m) {
      EXPECT_TRUE(Contributed(op, layer, m))
          << "unit " << op.unit << " has no gradient of micro-batch " << m;
    }
  }
  // The gradient of some boundary at or below a layer exists only when a slot
  // that holds the layer has committed.
  bool Contributed(const RunHostOpAction& op, int layer, int64_t micro_batch) {
    for (int boundary = 0; boundary <= layer; ++boundary) {
      if (produced_.count(
              {op.step_number, op.round, true, boundary, micro_batch}) != 0) {
        return true;
      }
    }
    return false;
  }

  const JobShape shape_;
  Dispatcher dispatcher_;
  std::mt19937_64 random_;
  std::map<uint64_t, StepSpec> specs_;
  std::vector<std::vector<RunSlotAction>> queues_;
  std::vector<RunHostOpAction> host_queue_;
  std::set<BoundaryKey> produced_;
  std::set<SlotId> committed_;
  std::set<SlotId> withdrawing_;
  std::set<uint64_t> reduced_;
  std::set<std::tuple<uint64_t, int, int>> reduces_;
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
    EXPECT_FALSE(world.dispatcher().Updating());
    world.allow_updates = false;
    const uint64_t step = world.Begin(TrainStep(1, clip));
    world.RunToEnd();
    EXPECT_EQ(world.dispatcher().Updating(), !clip);
    if (clip) world.Allow(step);
    EXPECT_TRUE(world.dispatcher().Updating());
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
  EXPECT_FALSE(world.dispatcher().Updating());
  world.Allow(step);
  EXPECT_TRUE(world.dispatcher().Updating());
}

TEST(DispatcherTest, AJobThatTrainsNothingIsABug) {
  EXPECT_DEATH(Dispatcher({1, 2, false, {false, false}}, {}), "check failed");
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
  EXPECT_EQ(PartsOfSlot(world, SlotPass::kBackward, {1, 1}),
            (Parts{{0, {0, 2}}, {1, {2, 4}}, {2, {4, 6}}, {3, {6, 8}}}));
  EXPECT_EQ(PartsOfSlot(world, SlotPass::kBackward, {0, 0}),
            (Parts{{0, {0, 8}}}));
  // A round of three groups, cut in proportion; positions count on.
  EXPECT_EQ(PartsOfSlot(world, SlotPass::kForward, {0, 1}, 1),
            (Parts{{1, {0, 2}}, {2, {2, 3}}}));
  EXPECT_EQ(PartsOfSlot(world, SlotPass::kFused, {2, 3}, 1),
            (Parts{{3, {0, 2}}, {0, {2, 3}}}));
  EXPECT_EQ(PartsOfSlot(world, SlotPass::kBackward, {1, 1}, 1),
            (Parts{{1, {0, 1}}, {2, {1, 2}}, {3, {2, 3}}}));
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
  EXPECT_TRUE(world.dispatcher().Idle());
  EXPECT_EQ(world.dispatcher().live_device_count(), 1);
}

TEST(DispatcherTest, RespawnedDeviceGetsItsSlotsAgainInOrder) {
  World world(kShape, 2, 11);
  world.Begin(TrainStep(1, true));
  ASSERT_EQ(world.sent.size(), 4u);
  world.Crash(1);
  EXPECT_EQ(world.sent.size(), 4u);
  world.Respawn(1);
  ASSERT_EQ(world.sent.size(), 6u);
  EXPECT_EQ(world.sent[4].slot, world.sent[1].slot);
  EXPECT_EQ(world.sent[5].slot, world.sent[3].slot);
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
      ASSERT_TRUE(world.dispatcher().Idle()) << "stuck";
    }
    for (const auto& [key, count] : world.updates) {
      EXPECT_EQ(count, 1) << "step " << key.first << " unit " << key.second;
    }
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
    while (random() % 16 != 0 && world.dispatcher().Updating()) {
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
    EXPECT_TRUE(world.dispatcher().Idle());
    world.begin_next_when_reduced = false;
    const int done = world.steps_done;
    world.Begin(TrainStep(1, true));
    world.RunToEnd();
    EXPECT_EQ(world.steps_done, done + 1);
  }
}

}  // namespace
}  // namespace roundhouse
