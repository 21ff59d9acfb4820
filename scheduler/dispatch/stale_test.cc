// Steps of an asynchronous optimizer: one begins before the last one is
// reduced.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>

#include "gtest/gtest.h"
#include "scheduler/dispatch/test_world.h"

namespace roundhouse {
namespace {

JobShape StaleShape() {
  JobShape shape = kShape;
  shape.stale = true;
  return shape;
}

int SlotsOfStep(const World& world, uint64_t step) {
  return static_cast<int>(std::count_if(world.sent.begin(), world.sent.end(),
                                        [step](const RunSlotAction& slot) {
                                          return slot.place.step_number == step;
                                        }));
}

TEST(StaleTest, AStepRunsWhileTheOneBeforeWaitsForItsUpdates) {
  StepsWorld world(StaleShape(), 2, 3, TrainStep(1, true), 2);
  world.allow_updates = false;
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 0);
  EXPECT_TRUE(world.updates.empty());
  // All slots of both have run, and the first one's sums are kept.
  EXPECT_EQ(SlotsOfStep(world, 1), 4);
  world.allow_updates = true;
  world.Allow(0);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 2);
  EXPECT_TRUE(world.Idle());
}

// The third step reads what the first one leaves.
TEST(StaleTest, NoMoreThanOneUpdateIsMissed) {
  StepsWorld world(StaleShape(), 2, 3, TrainStep(1, true), 3);
  world.HoldAfter(std::nullopt);
  world.allow_updates = false;
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 0);
  world.Allow(0);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  world.allow_updates = true;
  world.Allow(1);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 3);
}

TEST(StaleTest, AHoldKeepsWhatItsStepLeaves) {
  StepsWorld world(StaleShape(), 2, 5, TrainStep(1, true), 6);
  world.HoldAfter(1);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 2);
  for (const auto& [unit, count] : world.updates) EXPECT_LE(unit.first, 1u);
  world.HoldAfter(std::nullopt);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 6);
}

TEST(StaleTest, AbandoningGivesUpAllThatIsNotReduced) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    StepsWorld world(StaleShape(), 3, seed, TrainStep(1 + seed % 2, true), 20);
    const int events = static_cast<int>(random() % 150);
    for (int i = 0; i < events; ++i) world.StepOnce();
    world.Abandon();
    world.RunToEnd();
    EXPECT_EQ(world.quiet, 1);
    EXPECT_TRUE(world.Idle());
    // Whole steps, in order.
    for (int step = 0; step < world.steps_done; ++step) {
      for (int unit = 0; unit < 5; ++unit) {
        EXPECT_EQ((world.updates[{static_cast<uint64_t>(step), unit}]), 1);
      }
    }
  }
}

// The one whose loss was not finite is reduced, and never gets its clip factor.
TEST(StaleTest, AStepThatMayNotUpdateIsGivenUpToo) {
  StepsWorld world(StaleShape(), 2, 7, TrainStep(1, true), 9);
  world.allow_updates = false;
  world.RunToEnd();
  ASSERT_EQ(world.trace.back(), "reduced 0");
  world.Abandon();
  world.RunToEnd();
  EXPECT_EQ(world.quiet, 1);
  EXPECT_TRUE(world.updates.empty());
  EXPECT_TRUE(world.Idle());
}

TEST(StaleTest, RandomLossesNeverStopOrRepeatAStep) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int layers = 1 + static_cast<int>(random() % 6);
    const int devices = 1 + static_cast<int>(random() % 5);
    JobShape shape = {layers, layers + 1, random() % 2 == 0, {}};
    shape.stale = true;
    StepSpec step =
        TrainStep(1 + static_cast<int>(random() % 3), random() % 2 == 0);
    step.plan = RandomPlan(random, layers);
    if (random() % 2 == 0) SplitAtRandom(random, step);
    if (random() % 2 == 0) {
      step.boundary_blocks = BoundaryBlocksOf(step, shape, 0);
    }
    constexpr int kSteps = 5;
    StepsWorld world(shape, devices, seed, step, kSteps);
    for (int i = 0; i < 2000 && !world.Idle(); ++i) {
      world.StepOnce();
      if (random() % 20 != 0) continue;
      world.LoseAtRandom(random);
    }
    world.RunToEnd();
    EXPECT_EQ(world.steps_done, kSteps);
    for (uint64_t number = 0; number < kSteps; ++number) {
      for (int unit = 0; unit <= layers; ++unit) {
        EXPECT_EQ((world.updates[{number, unit}]), 1);
      }
    }
  }
}

}  // namespace
}  // namespace roundhouse
