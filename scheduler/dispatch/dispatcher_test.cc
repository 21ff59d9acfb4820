#include "scheduler/dispatch/dispatcher.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/dispatch/test_world.h"

namespace roundhouse {
namespace {

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
  EXPECT_EQ(world.sent[0].kind, SlotKind::kForward);
  EXPECT_EQ(world.sent[1].kind, SlotKind::kFused);
  EXPECT_EQ(world.sent[1].layers, (LayerRange{2, 3}));
  EXPECT_EQ(world.sent[2].kind, SlotKind::kBackward);
  EXPECT_EQ(world.sent[4].place.buffer_set, 1);
  EXPECT_EQ(world.steps_done, 2);
}

TEST(DispatcherTest, LooksAheadThreeSlotsPerDeviceBeforeAnyInputExists) {
  World world(kShape, 1, 1);
  world.Begin(TrainStep(1, true));
  EXPECT_EQ(world.sent.size(), 3u);
  World wide(kShape, 4, 1);
  wide.Begin(TrainStep(1, true));
  EXPECT_EQ(wide.sent.size(), 4u);
}

// One stage, so that a round is one slot.
size_t SlotsSentAhead(ContributionBlocks blocks) {
  World world(kShape, 2, 1);
  StepSpec spec = TrainStep(4, true);
  spec.plan = {{}, {{0, 3}}, true};
  spec.blocks = blocks;
  world.Begin(spec);
  const size_t sent = world.sent.size();
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  EXPECT_EQ(world.sent.size(), 4u);
  return sent;
}

TEST(DispatcherTest, SlotsWaitForBlocksForTheirSums) {
  EXPECT_EQ(SlotsSentAhead({3, 1}), 1u);
  EXPECT_EQ(SlotsSentAhead({5, 2}), 1u);
  EXPECT_EQ(SlotsSentAhead({6, 1}), 1u);
  EXPECT_EQ(SlotsSentAhead({6, 2}), 2u);
}

TEST(DispatcherTest, BlocksAreFreeWhenTheirLayerIsReduced) {
  World world(kShape, 2, 1);
  StepSpec spec = TrainStep(1, false);
  spec.plan = {
      {{0, 0}, {1, 1}, {2, 2}}, {{3, 3}, {2, 2}, {1, 1}, {0, 0}}, true};
  // For one of the three backward slots.
  spec.blocks = {1, 1};
  world.Begin(spec);
  EXPECT_EQ(world.sent.size(), 5u);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  EXPECT_EQ(world.sent.back().blocks, std::vector<int>{0});
}

TEST(DispatcherTest, ATiedHeadsShareIsReducedBeforeTheRowsAreThere) {
  JobShape shape = kShape;
  shape.tied_head = true;
  for (const int rounds : {1, 3}) {
    World world(shape, 3, 1);
    world.Begin(TrainStep(rounds, true));
    world.RunToEnd();
    EXPECT_EQ(world.steps_done, 1);
    EXPECT_EQ(world.split_reductions, rounds);
    EXPECT_EQ(world.updates.size(), 5u);
  }
}

TEST(DispatcherTest, ATiedHeadsShareThatComesWithTheRowsIsReducedWithThem) {
  JobShape shape = kShape;
  shape.tied_head = true;
  World world(shape, 2, 1);
  StepSpec spec = TrainStep(3, true);
  spec.plan = {{}, {{0, 3}}, true};
  world.Begin(spec);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  EXPECT_EQ(world.split_reductions, 0);
}

TEST(DispatcherTest, ASlotThatNeedsMoreBlocksThanThereAreIsRefused) {
  World world(kShape, 2, 1);
  StepSpec spec = TrainStep(1, false);
  spec.blocks = {0, 1};
  EXPECT_DEATH(world.Begin(spec), "blocks");
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

TEST(DispatcherTest, AStepBegunMeanwhileDoesNotHideThatOneIsUpdating) {
  World world(kShape, 1, 5);
  world.Begin(TrainStep(1, false));
  world.Begin(TrainStep(1, false));
  bool torn = false;
  while (world.StepOnce()) {
    if (!world.updates.empty() && world.trace.empty()) {
      torn = true;
      EXPECT_TRUE(world.Updating());
    }
  }
  EXPECT_TRUE(torn);
  EXPECT_FALSE(world.Updating());
}

TEST(DispatcherTest, AStepWhoseUpdatesAreSkippedEndsAndTheNextGoesOn) {
  for (const JobShape& shape : {kShape, kAdapterShape}) {
    World world(shape, 2, 3);
    world.skips = {0};
    world.begin_next_when_reduced = true;
    world.Begin(TrainStep(2, true));
    world.RunToEnd();
    EXPECT_EQ(world.trace, (std::vector<std::string>{"reduced 0", "done 0",
                                                     "reduced 1", "done 1"}));
    for (const auto& [update, count] : world.updates) {
      EXPECT_EQ(update.first, 1u);
    }
    EXPECT_EQ(static_cast<int>(world.updates.size()), shape.trainable_count());
    EXPECT_TRUE(world.Idle());
  }
}

// Else the step after it would end before the save that it is held for.
TEST(DispatcherTest, AHeldStepThatIsSkippedEndsWithTheHold) {
  World world(kShape, 2, 4);
  world.skips = {1};
  world.HoldAfter(world.Begin(TrainStep(1, true)));
  world.RunToEnd();
  world.begin_next_when_reduced = true;
  world.Begin(TrainStep(1, true));
  world.RunToEnd();
  EXPECT_EQ(world.trace,
            (std::vector<std::string>{"reduced 0", "done 0", "reduced 1"}));
  EXPECT_EQ(world.sent.size(), 12u);  // the next step ran under the hold
  EXPECT_TRUE(world.Updating() || !world.Idle());
  world.HoldAfter(std::nullopt);
  world.RunToEnd();
  EXPECT_EQ(world.trace.back(), "done 2");
  EXPECT_EQ(world.steps_done, 3);
  EXPECT_EQ(world.updates.size(), 10u);
}

TEST(DispatcherTest, SkippedStepsAmongLossesNeverStopAJob) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    World world(kShape, 3, seed);
    int left = 6;
    for (uint64_t step = 0; step < 6; ++step) {
      if (random() % 2 == 0) world.skips.insert(step);
    }
    StepSpec spec = TrainStep(1 + static_cast<int>(random() % 2), true);
    world.on_reduced = [&] {
      if (--left > 0) world.Begin(spec);
    };
    world.Begin(spec);
    for (int i = 0; i < 2000 && !world.Idle(); ++i) {
      world.StepOnce();
      if (random() % 20 != 0) continue;
      if (random() % 4 == 0) world.CrashHost();
      const int device = static_cast<int>(random() % 3);
      world.Crash(device);
      world.Respawn(device);
    }
    world.RunToEnd();
    EXPECT_EQ(world.steps_done, 6);
    EXPECT_EQ(world.updates.size(), 5 * (6 - world.skips.size()));
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
  EXPECT_EQ(world.gathers, 3);
  EXPECT_EQ(world.trace.back(), "reduced 1") << "its adapters are not there";
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
  EXPECT_EQ(world.sent[1].kind, SlotKind::kEvaluate);
  EXPECT_TRUE(world.updates.empty());
}

// The parts of a plan's slot, as (device, share).
using Parts = std::vector<std::pair<int, IndexRange>>;
Parts PartsOfSlot(const World& world, SlotKind kind, LayerRange layers,
                  int round = 0) {
  Parts parts;
  for (const RunSlotAction& slot : world.sent) {
    if (slot.kind == kind && slot.layers == layers &&
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
  EXPECT_EQ(world.sent.size(), 11u);  // device 0 has three
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  EXPECT_EQ(PartsOfSlot(world, SlotKind::kForward, {0, 1}),
            (Parts{{0, {0, 4}}, {1, {4, 8}}}));
  EXPECT_EQ(PartsOfSlot(world, SlotKind::kFused, {2, 3}),
            (Parts{{2, {0, 6}}, {3, {6, 8}}}));
  // Device 3 has less to do than 2 has.
  EXPECT_EQ(PartsOfSlot(world, SlotKind::kBackward, {1, 1}),
            (Parts{{0, {0, 2}}, {1, {2, 4}}, {3, {4, 6}}, {2, {6, 8}}}));
  EXPECT_EQ(PartsOfSlot(world, SlotKind::kBackward, {0, 0}),
            (Parts{{0, {0, 8}}}));
  // A round of three groups, cut in proportion.
  const auto expect_shares = [&](SlotKind kind, LayerRange layers,
                                 const std::vector<IndexRange>& shares) {
    std::set<int> devices;
    std::vector<IndexRange> found;
    for (const auto& [device, share] : PartsOfSlot(world, kind, layers, 1)) {
      devices.insert(device);
      found.push_back(share);
    }
    EXPECT_EQ(found, shares);
    EXPECT_EQ(devices.size(), shares.size());
  };
  expect_shares(SlotKind::kForward, {0, 1}, {{0, 2}, {2, 3}});
  expect_shares(SlotKind::kFused, {2, 3}, {{0, 2}, {2, 3}});
  expect_shares(SlotKind::kBackward, {1, 1}, {{0, 1}, {1, 2}, {2, 3}});
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
  EXPECT_EQ(PartsOfSlot(world, SlotKind::kEvaluate, {2, 3}),
            (Parts{{0, {0, 1}}, {1, {1, 2}}}));
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

// The next step's slots fill the devices that the first one leaves.
TEST(DispatcherTest, AStepMayBeginBeforeTheOneBeforeIsReduced) {
  for (const bool clip : {false, true}) {
    World world(kShape, 3, 19);
    world.Begin(TrainStep(1, clip));
    EXPECT_EQ(world.sent.size(), 4u);
    world.Begin(TrainStep(1, clip));
    EXPECT_GT(world.sent.size(), 4u);
    world.RunToEnd();
    EXPECT_EQ(world.trace, (std::vector<std::string>{"reduced 0", "done 0",
                                                     "reduced 1", "done 1"}));
    EXPECT_EQ(world.updates.size(), 10u);
  }
}

TEST(DispatcherTest, AbandoningGivesUpBothStepsThatAreNotReduced) {
  World world(kShape, 2, 20);
  world.Begin(TrainStep(2, true));
  world.Begin(TrainStep(1, true));
  world.Abandon();
  world.RunToEnd();
  EXPECT_EQ(world.trace, std::vector<std::string>{"quiet"});
  EXPECT_TRUE(world.updates.empty());
}

TEST(DispatcherTest, BeginningAThirdStepIsABug) {
  World world(kShape, 1, 19);
  world.Begin(TrainStep(1, true));
  world.Begin(TrainStep(1, true));
  EXPECT_DEATH(world.Begin(TrainStep(1, true)), "check failed");
}

// One backward slot of two layers: the first to be down is reduced under it,
// but updated only after it.
TEST(DispatcherTest, AContributionThatIsDownIsReducedBeforeItsSlotIsDone) {
  for (const bool report : {false, true}) {
    int early = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      World world(kShape, 2, seed);
      world.report_contributions = report;
      world.Begin(TrainStep(2, false));
      world.RunToEnd();
      EXPECT_EQ(world.steps_done, 1);
      EXPECT_EQ(world.updates.size(), 5u);
      early += world.early_reductions;
    }
    EXPECT_EQ(early > 0, report);
  }
}

}  // namespace
}  // namespace roundhouse
