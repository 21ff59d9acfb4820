// Jobs that keep no gradient sums: units are reduced as they are updated.
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/dispatch/test_world.h"

namespace roundhouse {
namespace {

JobShape OnePass(JobShape shape) {
  shape.one_pass = true;
  return shape;
}

// World looks at every operation: which are one pass, and what it may find.
TEST(OnePassTest, EveryUnitIsUpdatedOnceAStep) {
  for (const JobShape& shape :
       {kShape, kAdapterShape, JobShape{4, 5, true, {}}}) {
    StepsWorld world(OnePass(shape), 2, 3, TrainStep(1, false), 4);
    world.RunToEnd();
    EXPECT_EQ(world.steps_done, 4);
    for (int unit = 0; unit < shape.unit_count; ++unit) {
      EXPECT_EQ((world.updates[{3, unit}]), shape.Trains(unit) ? 1 : 0) << unit;
    }
  }
}

// Its slots may still be run again and must read the weights of before.
TEST(OnePassTest, SumsThatAreDownWaitForTheirSlots) {
  for (const bool one_pass : {false, true}) {
    JobShape shape = kAdapterShape;
    shape.one_pass = one_pass;
    StepsWorld world(shape, 2, 5, TrainStep(1, false), 8);
    world.report_contributions = true;
    world.RunToEnd();
    EXPECT_EQ(world.steps_done, 8);
    EXPECT_EQ(world.early_reductions == 0, one_pass);
  }
}

// The next step's gather waits for it.
TEST(OnePassTest, TheEmbeddingIsReducedBeforeTheLastUnitsAreUpdated) {
  StepsWorld world(OnePass(kShape), 1, 3, TrainStep(1, false), 1);
  world.RunToEnd();
  std::vector<std::pair<HostOpKind, int>> last;  // of the slot of layer 0
  for (const RunHostOpAction& op : world.host_ops) {
    if (op.unit <= 1 && op.kind != HostOpKind::kGather) {
      last.emplace_back(op.kind, op.unit);
    }
  }
  ASSERT_EQ(last.size(), 3u);
  EXPECT_EQ(last[0], std::make_pair(HostOpKind::kReduce, 0));
}

TEST(OnePassTest, UpdatesAreHeldForASave) {
  StepsWorld world(OnePass(kShape), 2, 7, TrainStep(1, false), 3);
  world.HoldAfter(0);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  EXPECT_EQ((world.updates[{1, 1}]), 0);
  world.HoldAfter(std::nullopt);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 3);
}

// Some abandoned on the way: no step is half updated.
TEST(OnePassTest, RandomLossesNeverStopOrRepeatAStep) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int layers = 1 + static_cast<int>(random() % 6);
    const int devices = 1 + static_cast<int>(random() % 5);
    JobShape shape = OnePass({layers, layers + 1, random() % 2 == 0, {}});
    shape.stale = random() % 2 == 0;
    StepSpec step = TrainStep(1, false);
    step.plan = RandomPlan(random, layers);
    if (random() % 2 == 0) SplitAtRandom(random, step);
    if (random() % 2 == 0) {
      step.boundary_blocks = BoundaryBlocksOf(step, shape, 0);
    }
    constexpr int kSteps = 5;
    StepsWorld world(shape, devices, seed, step, kSteps);
    world.report_contributions = random() % 2 == 0;
    const bool abandons = random() % 4 == 0;
    for (int i = 0; i < 2000 && !world.Idle(); ++i) {
      world.StepOnce();
      if (random() % 20 != 0) continue;
      if (abandons && world.quiet == 0 && random() % 10 == 0 &&
          !world.Updating()) {
        world.Abandon();
        break;
      }
      world.LoseAtRandom(random);
    }
    world.RunToEnd();
    EXPECT_TRUE(world.Idle());
    EXPECT_TRUE(world.quiet > 0 || world.steps_done == kSteps);
    for (uint64_t number = 0; number < kSteps; ++number) {
      const bool done = number < static_cast<uint64_t>(world.steps_done);
      for (int unit = 0; unit <= layers; ++unit) {
        EXPECT_EQ((world.updates[{number, unit}]), done ? 1 : 0)
            << number << " " << unit;
      }
    }
  }
}

}  // namespace
}  // namespace roundhouse
