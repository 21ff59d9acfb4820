// Devices and workers that die, at chosen moments and at random ones.
#include <cstdint>
#include <map>
#include <random>

#include "gtest/gtest.h"
#include "scheduler/dispatch/test_world.h"

namespace roundhouse {
namespace {

// A plan that is wider than what is left.
TEST(LossesTest, PartsShareTheDevicesThatAreLeft) {
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
  EXPECT_EQ(world.dispatcher().DeviceSpeeds().size(), 1u);
}

TEST(LossesTest, RespawnedDeviceGetsItsSlotsAgainInOrder) {
  World world(kShape, 2, 11);
  world.Begin(TrainStep(1, true));
  // The fused slot is long.
  ASSERT_EQ(world.sent.size(), 4u);
  EXPECT_EQ(Number(world.sent[1].device), 1);
  world.Crash(0);
  world.Respawn(0);
  ASSERT_EQ(world.sent.size(), 7u);
  EXPECT_EQ(world.sent[4].slot, world.sent[0].slot);
  EXPECT_EQ(world.sent[5].slot, world.sent[2].slot);
  EXPECT_EQ(world.sent[6].slot, world.sent[3].slot);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
}

TEST(LossesTest, LostDeviceWithdrawsAndPlacesAnew) {
  World world(kShape, 2, 13);
  world.Begin(TrainStep(1, true));
  world.Crash(0);
  world.Lose(0);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  EXPECT_EQ(world.dispatcher().DeviceSpeeds().size(), 1u);
  EXPECT_EQ(Number(world.sent.back().device), 1);
}

TEST(LossesTest, LosingADeviceThatWasNeverUpChangesNothing) {
  World world(kShape, 2, 14);
  world.Begin(TrainStep(1, true));
  world.dispatcher().DeviceLost(static_cast<DeviceId>(7));
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  EXPECT_EQ(world.dispatcher().DeviceSpeeds().size(), 2u);
}

// A job that waits for its disk has nothing with a device, whatever dies or
// comes back meanwhile, and its steps end as they would have.
TEST(LossesTest, HeldSlotsAreWithdrawnAndSentAgain) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    World world(kShape, 2, seed);
    for (int step = 0; step < 3; ++step) {
      world.Begin(TrainStep(2, random() % 2 == 0));
      for (uint64_t i = random() % 12; i > 0; --i) world.StepOnce();
      world.HoldSlots(random() % 2 == 0 ? StartedSlots::kWithdrawn
                                        : StartedSlots::kEnd);
      const int dies = static_cast<int>(random() % 2);
      const bool early = random() % 2 == 0;
      if (early) world.Crash(dies);
      while (world.StepOnce()) {
      }
      if (!early) world.Crash(dies);
      world.Respawn(dies);
      const size_t sent = world.sent.size();
      while (world.StepOnce()) {
      }
      EXPECT_EQ(world.sent.size(), sent);
      world.ReleaseSlots();
      world.RunToEnd();
      ASSERT_EQ(world.steps_done, step + 1);
      ASSERT_TRUE(world.Idle());
    }
  }
}

TEST(LossesTest, HeldStepsCanBeAbandoned) {
  World world(kShape, 2, 5);
  world.Begin(TrainStep(2, true));
  for (int i = 0; i < 3; ++i) world.StepOnce();
  world.HoldSlots();
  world.Abandon();
  world.RunToEnd();
  EXPECT_EQ(world.quiet, 1);
  EXPECT_EQ(world.steps_done, 0);
}

// What comes before the slots of the device that is lost stays where it is.
TEST(LossesTest, OnlyWhatComesLaterIsPlacedAnew) {
  World world(kShape, 2, 11);
  world.Begin(TrainStep(1, true));
  ASSERT_EQ(world.sent.size(), 4u);
  ASSERT_EQ(Number(world.sent[0].device), 0);
  ASSERT_EQ(Number(world.sent[1].device), 1);
  world.Crash(1);
  world.Lose(1);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
  ASSERT_EQ(world.sent.size(), 7u);
  EXPECT_EQ(world.sent[4].slot, world.sent[1].slot);
}

// What a device computes ends there; it gets nothing more, and the others do
// the rest.
TEST(LossesTest, ALeavingDeviceEndsWhatItComputes) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    World world(kShape, 3, seed);
    world.Begin(TrainStep(3, true));
    for (uint64_t i = random() % 20; i > 0; --i) world.StepOnce();
    const int leaves = static_cast<int>(random() % 3);
    world.Leave(leaves);
    while (world.dispatcher().HasSlots(static_cast<DeviceId>(leaves))) {
      ASSERT_TRUE(world.StepOnce());
    }
    const bool stays = random() % 3 == 0;
    if (stays) {
      world.Stay(leaves);
    } else {
      world.Crash(leaves);
      world.Lose(leaves);
    }
    world.RunToEnd();
    ASSERT_EQ(world.steps_done, 1);
    EXPECT_EQ(world.dispatcher().DeviceSpeeds().size(), stays ? 3u : 2u);
  }
}

TEST(LossesTest, WithEveryDeviceAwayJobsWaitForOne) {
  World world(kShape, 2, 3);
  world.Begin(TrainStep(2, true));
  for (int device = 0; device < 2; ++device) {
    world.Leave(device);
    while (world.dispatcher().HasSlots(static_cast<DeviceId>(device))) {
      ASSERT_TRUE(world.StepOnce());
    }
    world.Crash(device);
    world.Lose(device);
  }
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 0);
  world.Respawn(1);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
}

// Whatever dies, every step ends, every unit is updated exactly once per step,
// and no committed slot runs again.
TEST(LossesTest, RandomLossesNeverStopOrRepeatAStep) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const JobShape shape = RandomShape(random);
    const int layers = shape.layer_count;
    const int devices = 1 + static_cast<int>(random() % 5);
    const int most_sent = 1 + static_cast<int>(random() % (3 * devices));
    World world(shape, devices, seed * 7);
    world.report_contributions = random() % 2 == 0;
    int lost = 0;
    for (int step = 0; step < 4; ++step) {
      StepSpec spec =
          TrainStep(1 + static_cast<int>(random() % 4), random() % 2 == 0);
      spec.plan = RandomPlan(random, layers);
      if (random() % 2 == 0) SplitAtRandom(random, spec);
      spec.blocks = BlocksOf(
          spec.plan, static_cast<int64_t>(spec.round_micro_batches.size()),
          most_sent);
      spec.train = random() % 4 != 0;
      world.begin_next_when_reduced = spec.train && random() % 2 == 0;
      const int done_before = world.steps_done;
      world.Begin(spec);
      // The next one at once, or when the first is reduced.
      if (!world.begin_next_when_reduced && random() % 3 == 0) {
        world.Begin(spec);
      }
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
TEST(LossesTest, RandomLossesNeverStopSeveralJobs) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int devices = 1 + static_cast<int>(random() % 5);
    const int most_sent = 1 + static_cast<int>(random() % (3 * devices));
    World world(kShape, devices, seed * 7);
    world.report_contributions = random() % 2 == 0;
    const auto priority = [&] {
      return kPriorities[random() % kPriorityCount];
    };
    world.dispatcher().AddJob(kOther, kShape, {}, priority());
    world.dispatcher().AddJob(JobId{3}, kShape, {}, priority());
    std::map<uint64_t, int> left = {{1, 3}, {2, 2}, {3, 4}};
    const auto begin = [&](uint64_t job) {
      if (left[job]-- == 0) return;
      StepSpec spec =
          TrainStep(1 + static_cast<int>(random() % 4), random() % 2 == 0);
      spec.plan = RandomPlan(random, 4);
      if (random() % 2 == 0) SplitAtRandom(random, spec);
      spec.blocks = BlocksOf(
          spec.plan, static_cast<int64_t>(spec.round_micro_batches.size()),
          most_sent);
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
      if (random() % 16 == 0) {
        world.SetPriority(JobId{1 + random() % 3}, priority());
      }
      if (random() % 64 == 0 && live > 1) {
        world.Crash(lost);
        if (random() % 2 == 0) world.StepOnce();
        world.Lose(lost++);
      }
      if (random() % 16 == 0) {
        world.LeaveForAWhile(
            random, lost + static_cast<int>(random() % (devices - lost)));
      }
      while (seen < world.done_of.size()) begin(world.done_of[seen++]);
    }
    EXPECT_EQ(world.steps_done, 9) << "stuck";
  }
}

TEST(LossesTest, RandomAbandonsAlwaysComeToRest) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int devices = 1 + static_cast<int>(random() % 4);
    World world(kShape, devices, seed);
    world.begin_next_when_reduced = random() % 2 == 0;
    StepSpec spec = TrainStep(2, random() % 2 == 0);
    if (random() % 2 == 0) SplitAtRandom(random, spec);
    world.Begin(spec);
    if (!world.begin_next_when_reduced && random() % 2 == 0) world.Begin(spec);
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
