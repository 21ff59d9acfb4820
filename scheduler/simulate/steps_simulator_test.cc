// Consecutive steps: what they wait for, by hand and by the checker.
#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/test_costs.h"
#include "scheduler/simulate/checker.h"
#include "scheduler/simulate/step_simulator.h"

namespace roundhouse {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

struct Steps {
  ModelCosts costs = SmallModel(3);
  Machine machine;
  StepPlan plan;
  int micro_batches = 4;
  StepsOptions options;

  explicit Steps(Updates updates, int steps = 3, int rounds = 1) {
    machine.devices.resize(2);
    plan = UniformPlan(BlockByBlock(3), {2, 2, 2}, 4, 4);
    options.updates = updates;
    options.steps = steps;
    options.rounds = rounds;
  }

  Schedule Run() const {
    return *SimulateSteps(costs, machine, plan, micro_batches, options);
  }

  std::string Verdict(const Schedule& schedule) const {
    StepsCheckOptions check{machine,         micro_batches,
                            options.steps,   options.rounds,
                            options.updates, options.step.contributions};
    return std::string(CheckStepsSchedule(schedule, costs, check).message());
  }
};

StepPlan OneStageOfBlocks() {
  Plan stages;
  stages.fused = true;
  stages.forward = {{0, 2}};
  stages.backward = {{3, 3}, {0, 2}};
  return UniformPlan(stages, {2, 2, 2}, 4, 4);
}

int64_t FirstForwardNs(const Schedule& schedule, int step) {
  int64_t first = schedule.MakespanNs();
  for (const Interval& interval : schedule.intervals) {
    if (interval.kind == WorkKind::kForward && interval.step == step) {
      first = std::min(first, interval.start_ns);
    }
  }
  return first;
}

int64_t LastBackwardNs(const Schedule& schedule, int step) {
  int64_t last = 0;
  for (const Interval& interval : schedule.intervals) {
    if (interval.kind == WorkKind::kBackward && interval.step == step) {
      last = std::max(last, interval.end_ns);
    }
  }
  return last;
}

// One device, no activations to wait for: what remains between two steps is the
// turn-around of layer 0.  21 MB down and up 1 ms each; reduction of 63 MB and
// update of 10.5 M parameters at 200 GB/s: 0.315 and 1.575 ms.
TEST(StepsSimulatorTest, TheTurnAroundOfLayerZeroIsAllThatRemains) {
  Steps steps(Updates::kAsReduced);
  steps.machine.devices.resize(1);
  steps.costs.hop_ns = 0;
  steps.plan = UniformPlan(BlockByBlock(3), {1, 1, 1}, 4, 1);
  const Schedule schedule = steps.Run();
  EXPECT_EQ(steps.Verdict(schedule), "");
  const int64_t turn_around_ns = 1'000'000 + 315'000 + 1'575'000 + 1'000'000;
  const int64_t step_ns = 4 * steps.costs.MicroBatchNs() + turn_around_ns;
  EXPECT_EQ(schedule.MakespanNs(), 3 * step_ns);
}

// In one pass 21 MB are read in 0.105 ms, then 26 bytes a parameter moved in
// 1.365: no sum is written or read.
TEST(StepsSimulatorTest, OnePassTurnsLayerZeroAroundSooner) {
  Steps steps(Updates::kOnePass);
  steps.machine.devices.resize(1);
  steps.costs.hop_ns = 0;
  steps.plan = UniformPlan(BlockByBlock(3), {1, 1, 1}, 4, 1);
  const Schedule schedule = steps.Run();
  EXPECT_EQ(steps.Verdict(schedule), "");
  const int64_t turn_around_ns = 1'000'000 + 105'000 + 1'365'000 + 1'000'000;
  EXPECT_EQ(schedule.MakespanNs(),
            3 * (4 * steps.costs.MicroBatchNs() + turn_around_ns));
}

// The same with threads that move 63 GB/s: 1 ms and 5.
TEST(StepsSimulatorTest, HostThreadsMayBeSlowerThanMemory) {
  Steps steps(Updates::kAsReduced);
  steps.machine.devices.resize(1);
  steps.machine.host_work_rate = 63;
  steps.costs.hop_ns = 0;
  steps.plan = UniformPlan(BlockByBlock(3), {1, 1, 1}, 4, 1);
  const Schedule schedule = steps.Run();
  EXPECT_EQ(steps.Verdict(schedule), "");
  const int64_t turn_around_ns = 1'000'000 + 1'000'000 + 5'000'000 + 1'000'000;
  EXPECT_GE(schedule.MakespanNs(),
            3 * (4 * steps.costs.MicroBatchNs() + turn_around_ns));
  steps.machine.host_work_rate = 62;
  EXPECT_NE(steps.Verdict(schedule), "");
  steps.machine.host_work_rate = 1e6;  // no faster than memory
  EXPECT_EQ(steps.Run().MakespanNs(),
            3 * (4 * steps.costs.MicroBatchNs() + 3'890'000));
}

TEST(StepsSimulatorTest, AStaleStepWaitsForNoUpdate) {
  Steps steps(Updates::kStale);
  steps.machine.devices.resize(1);
  steps.costs.hop_ns = 0;
  steps.plan = UniformPlan(BlockByBlock(3), {1, 1, 1}, 4, 1);
  const Schedule schedule = steps.Run();
  EXPECT_EQ(steps.Verdict(schedule), "");
  // The device's last part and the next step's first one share its memory.
  EXPECT_EQ(FirstForwardNs(schedule, 1), LastBackwardNs(schedule, 0));
  EXPECT_EQ(schedule.BusyNs(), 3 * 4 * steps.costs.MicroBatchNs());
}

// With clipping the head's new weights are there only after all updates.
TEST(StepsSimulatorTest, ClippedUpdatesRunUnderTheNextForward) {
  Steps steps(Updates::kClipped);
  const Schedule clipped = steps.Run();
  EXPECT_EQ(steps.Verdict(clipped), "");
  steps.options.updates = Updates::kAsReduced;
  const Schedule early = steps.Run();
  EXPECT_GT(clipped.MakespanNs(), early.MakespanNs());
  int64_t head_updated_ns = 0;
  for (const Interval& interval : clipped.intervals) {
    if (interval.kind == WorkKind::kOptimizer && interval.step == 0 &&
        interval.layer_begin == 3) {
      head_updated_ns = interval.end_ns;
    }
  }
  EXPECT_LT(FirstForwardNs(clipped, 1), head_updated_ns);
}

TEST(StepsSimulatorTest, RoundsFollowWithoutAFlush) {
  Steps steps(Updates::kAsReduced, 2, 4);
  const Schedule schedule = steps.Run();
  EXPECT_EQ(steps.Verdict(schedule), "");
  steps.options.rounds = 1;
  EXPECT_LT(schedule.MakespanNs(), 4 * steps.Run().MakespanNs());
}

// The frozen bytes of a layer go up before its adapters are updated.
TEST(StepsSimulatorTest, FrozenBytesDoNotWait) {
  Steps steps(Updates::kAsReduced, 2);
  steps.costs.layer_bytes = 84'000'000;  // 4 ms
  steps.costs.layer_gradient_bytes = 210'000;
  steps.costs.head_gradient_bytes = 0;
  const Schedule schedule = steps.Run();
  EXPECT_EQ(steps.Verdict(schedule), "");
  EXPECT_LT(FirstForwardNs(schedule, 1) - LastBackwardNs(schedule, 0),
            2'000'000);
}

// All host work by time, pieces of one operation as one.
std::vector<Interval> HostWorkOf(const Schedule& schedule) {
  std::vector<Interval> work;
  for (const Interval& interval : schedule.intervals) {
    if (interval.resource.type == ResourceType::kHost) {
      work.push_back(interval);
    }
  }
  std::sort(work.begin(), work.end(), [](const Interval& a, const Interval& b) {
    return a.start_ns < b.start_ns;
  });
  std::vector<Interval> whole;
  for (const Interval& piece : work) {
    const bool goes_on = !whole.empty() && whole.back().kind == piece.kind &&
                         whole.back().layer_begin == piece.layer_begin &&
                         whole.back().end_ns == piece.start_ns;
    goes_on ? void(whole.back().end_ns = piece.end_ns) : whole.push_back(piece);
  }
  return whole;
}

// One operation a unit and step, as two intervals that touch.
TEST(StepsSimulatorTest, OnePassIsOneOperation) {
  for (const Updates updates : {Updates::kOnePass, Updates::kOnePassStale}) {
    const Steps steps(updates);
    const Schedule schedule = steps.Run();
    EXPECT_EQ(steps.Verdict(schedule), "");
    const std::vector<Interval> work = HostWorkOf(schedule);
    ASSERT_EQ(work.size(), 3u * 4 * 2);
    for (size_t i = 0; i < work.size(); i += 2) {
      EXPECT_EQ(work[i].kind, WorkKind::kReduce);
      EXPECT_EQ(work[i + 1].kind, WorkKind::kOptimizer);
      EXPECT_EQ(work[i].step, work[i + 1].step);
      EXPECT_EQ(work[i].layer_begin, work[i + 1].layer_begin);
      EXPECT_EQ(work[i].end_ns, work[i + 1].start_ns);
    }
  }
}

// A stage of all blocks: none is updated before the last of its sums is down,
// and then layer 0 goes first.
TEST(StepsSimulatorTest, OnePassWaitsForWholeParts) {
  Steps steps(Updates::kOnePass, 1);
  steps.plan = OneStageOfBlocks();
  const Schedule schedule = steps.Run();
  EXPECT_EQ(steps.Verdict(schedule), "");
  int64_t down_ns = 0;
  for (const Interval& interval : schedule.intervals) {
    if (interval.kind == WorkKind::kGradients) {
      down_ns = std::max(down_ns, interval.end_ns);
    }
  }
  std::vector<int> order;
  for (const Interval& work : HostWorkOf(schedule)) {
    if (work.kind != WorkKind::kReduce) continue;
    order.push_back(work.layer_begin);
    EXPECT_TRUE(work.layer_begin == 3 || work.start_ns >= down_ns);
  }
  EXPECT_EQ(order, (std::vector<int>{3, 0, 1, 2}));
}

TEST(StepsSimulatorTest, OnePassOfSeveralRoundsIsRefused) {
  Steps steps(Updates::kOnePass, 2, 2);
  const auto run = [&] {
    return SimulateSteps(steps.costs, steps.machine, steps.plan, 4,
                         steps.options)
        .status()
        .code();
  };
  EXPECT_EQ(run(), absl::StatusCode::kInvalidArgument);
  steps.options.rounds = 1;
  EXPECT_EQ(run(), absl::StatusCode::kOk);
  steps.options.step.ideas.prefetch = false;
  EXPECT_EQ(run(), absl::StatusCode::kInvalidArgument);
}

TEST(StepsSimulatorTest, WrongCountsAreRefused) {
  Steps steps(Updates::kAsReduced, 0);
  auto run = [&] {
    const auto schedule =
        SimulateSteps(steps.costs, steps.machine, steps.plan, 4, steps.options);
    return std::string(schedule.status().message());
  };
  EXPECT_NE(run().find("0 steps of 1 rounds"), std::string::npos);
  steps.options.steps = 2;
  steps.options.rounds = kMaxSimulatedRounds;
  EXPECT_FALSE(run().empty());
  steps.options.rounds = 0;
  EXPECT_FALSE(run().empty());
}

TEST(StepsSimulatorTest, RandomStepsAreSchedules) {
  for (uint64_t seed = 0; seed < 250; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
    const Updates modes[] = {Updates::kAsReduced, Updates::kClipped,
                             Updates::kStale, Updates::kOnePass,
                             Updates::kOnePassStale};
    Steps steps(modes[below(5)], 1 + below(4), 1 + below(4));
    if (IsOnePass(steps.options.updates)) steps.options.rounds = 1;
    steps.costs = SmallModel(1 + below(6));
    if (below(3) == 0) steps.costs.layer_gradient_bytes /= 100;
    if (below(4) == 0) steps.costs.head_gradient_bytes = 0;
    const int devices = 1 + below(5);
    steps.machine.devices.assign(devices, {});
    steps.machine.host_rate = 5.0 * (1 + below(40));
    steps.micro_batches = 1 + below(6);
    Plan stages = BlockByBlock(steps.costs.layers);
    if (below(2) == 0) stages.saving.every = 2 + below(3);
    steps.plan = UniformPlan(
        stages, {1 + below(devices), 1 + below(devices), 1 + below(devices)},
        steps.micro_batches, 1 + below(steps.micro_batches));
    steps.plan.look_ahead = 1 + below(3);
    if (below(2) == 0) {
      steps.options.step.contributions = Contributions::kFp32;
    }
    if (below(2) == 0) steps.options.step.fused = FusedSlots::kByLayer;
    ASSERT_EQ(steps.Verdict(steps.Run()), "") << ToString(steps.plan);
  }
}

// --- the checker sees what is wrong ---

using Wanted = std::function<bool(const Interval&)>;

// Moves what is wanted to `start_ns`.
void ExpectSeen(const Steps& steps, const Wanted& wanted, int64_t start_ns,
                const std::string& why) {
  Schedule schedule = steps.Run();
  ASSERT_EQ(steps.Verdict(schedule), "");
  for (Interval& interval : schedule.intervals) {
    if (!wanted(interval)) continue;
    const int64_t length_ns = interval.length_ns();
    interval.start_ns = start_ns;
    interval.end_ns = start_ns + length_ns;
    start_ns = interval.end_ns;
  }
  const std::string verdict = steps.Verdict(schedule);
  EXPECT_NE(verdict.find(why), verdict.npos) << verdict;
}

Wanted UpdateOf(int step, int layer) {
  return [=](const Interval& interval) {
    return interval.kind == WorkKind::kOptimizer && interval.step == step &&
           interval.layer_begin == layer;
  };
}

TEST(StepsCheckerTest, LateUpdatesAreSeen) {
  ExpectSeen(Steps(Updates::kAsReduced), UpdateOf(0, 1), kSecond,
             "goes up before its update of step 0");
  ExpectSeen(Steps(Updates::kStale), UpdateOf(0, 1), kSecond,
             "goes up before its update of step 0");
}

TEST(StepsCheckerTest, EarlyUpdatesAreSeen) {
  Steps steps(Updates::kAsReduced);
  steps.machine.host_rate = 1000;
  ExpectSeen(steps, UpdateOf(0, 1), 0, "before the last reduction of layer 1");
  // Allowed without clipping.
  const Schedule schedule = steps.Run();
  steps.options.updates = Updates::kClipped;
  EXPECT_NE(steps.Verdict(schedule).find("before the last reduction of layer"),
            std::string::npos);
}

TEST(StepsCheckerTest, OneVersionIsNotTwo) {
  Steps steps(Updates::kStale);
  const Schedule schedule = steps.Run();
  steps.options.updates = Updates::kAsReduced;
  EXPECT_NE(steps.Verdict(schedule).find("goes up before its update"),
            std::string::npos);
}

TEST(StepsCheckerTest, OnePassIsNotTwo) {
  Steps steps(Updates::kAsReduced);
  const Schedule two = steps.Run();
  steps.options.updates = Updates::kOnePass;
  const Schedule one = steps.Run();
  EXPECT_NE(steps.Verdict(two).find("reducing it moves"), std::string::npos);
  steps.options.updates = Updates::kAsReduced;
  EXPECT_NE(steps.Verdict(one).find("reducing it moves"), std::string::npos);
}

// Layer 0's sums are the last of its part: what begins before they are down
// begins before the part commits.
TEST(StepsCheckerTest, OnePassBeforeACommitIsSeen) {
  Steps steps(Updates::kOnePass, 1);
  steps.machine.host_rate = 1000;
  steps.plan = OneStageOfBlocks();
  Schedule schedule = steps.Run();
  ASSERT_EQ(steps.Verdict(schedule), "");
  int64_t down_ns = 0;  // of layer 2
  for (const Interval& interval : schedule.intervals) {
    if (interval.kind == WorkKind::kGradients && interval.layer_begin == 2) {
      down_ns = std::max(down_ns, interval.end_ns);
    }
  }
  int64_t earlier_ns = std::numeric_limits<int64_t>::max();
  const auto of_layer_2 = [](const Interval& interval) {
    return interval.resource.type == ResourceType::kHost &&
           interval.layer_begin == 2;
  };
  for (const Interval& interval : schedule.intervals) {
    if (!of_layer_2(interval)) continue;
    earlier_ns = std::min(earlier_ns, interval.start_ns - down_ns);
  }
  ASSERT_GT(earlier_ns, 0);
  for (Interval& interval : schedule.intervals) {
    if (!of_layer_2(interval)) continue;
    interval.start_ns -= earlier_ns;
    interval.end_ns -= earlier_ns;
  }
  const std::string verdict = steps.Verdict(schedule);
  EXPECT_NE(verdict.find("layer 2: it is reduced and updated from"),
            verdict.npos)
      << verdict;
}

TEST(StepsCheckerTest, MissingAndShortUpdatesAreSeen) {
  const Steps steps(Updates::kAsReduced);
  Schedule schedule = steps.Run();
  std::erase_if(schedule.intervals, UpdateOf(1, 2));
  EXPECT_EQ(steps.Verdict(schedule),
            "step 1 layer 2: its update moves 0 bytes, not 315000000");
}

TEST(StepsCheckerTest, TooFastUpdatesAreSeen) {
  Steps steps(Updates::kAsReduced);
  steps.machine.host_rate = 1000;
  Schedule schedule = steps.Run();
  ASSERT_EQ(steps.Verdict(schedule), "");
  for (Interval& interval : schedule.intervals) {
    if (!UpdateOf(2, 0)(interval)) continue;
    interval.end_ns -= interval.length_ns() / 2;
  }
  EXPECT_NE(steps.Verdict(schedule).find("more than 240 a nanosecond"),
            std::string::npos)
      << steps.Verdict(schedule);
}

TEST(StepsCheckerTest, ReductionsOfTwoRoundsAreTwo) {
  const Steps steps(Updates::kAsReduced, 1, 2);
  Schedule schedule = steps.Run();
  for (Interval& interval : schedule.intervals) {
    if (interval.kind == WorkKind::kReduce) interval.bytes -= 1;
  }
  EXPECT_NE(steps.Verdict(schedule).find("reducing it moves"),
            std::string::npos);
}

TEST(StepsCheckerTest, EarlyRowsAreSeen) {
  const Steps steps(Updates::kAsReduced);
  ExpectSeen(
      steps,
      [](const Interval& interval) {
        return interval.kind == WorkKind::kActivations && interval.step == 1 &&
               interval.layer_begin == 0 && interval.resource.index == 0 &&
               interval.resource.type == ResourceType::kH2d &&
               interval.micro_batch == 0;
      },
      // Nothing else goes up to the device then.
      kSecond, "is there, at");
  ExpectSeen(
      steps,
      [](const Interval& interval) {
        return interval.kind == WorkKind::kActivations && interval.step == 0 &&
               interval.layer_begin == 0 && interval.micro_batch == 3 &&
               interval.direction == PassDirection::kBackward;
      },
      kSecond, "inputs of round 0 go up before");
}

TEST(StepsCheckerTest, StepsAndMicroBatchesExist) {
  const Steps steps(Updates::kAsReduced);
  Schedule schedule = steps.Run();
  schedule.intervals.front().step = 3;
  EXPECT_NE(steps.Verdict(schedule).find("there is no such step"),
            std::string::npos);
  schedule = steps.Run();
  schedule.intervals.front().step = 0;
  schedule.intervals.front().micro_batch = 4;
  EXPECT_NE(steps.Verdict(schedule).find("no such micro-batch of a step"),
            std::string::npos);
}

int64_t ComputedNs(const Schedule& schedule, int step) {
  int64_t end_ns = 0;
  for (const Interval& interval : schedule.intervals) {
    if (interval.step == step && IsCompute(interval.kind)) {
      end_ns = std::max(end_ns, interval.end_ns);
    }
  }
  return end_ns;
}

// What is not too slow is what it is without a limit.
TEST(StepsSimulatorTest, GivesUpOnlyWhatIsCertainToBeTooSlow) {
  for (const int count : {1, 3}) {
    SCOPED_TRACE(count);
    Steps steps(Updates::kAsReduced, count);
    const Schedule all = steps.Run();
    const int64_t took_ns =
        ComputedNs(all, count - 1) - (count > 1 ? ComputedNs(all, 0) : 0);
    steps.options.step.give_up_ns = static_cast<double>(took_ns);
    const Schedule same = steps.Run();
    EXPECT_EQ(same.missing, 0);
    EXPECT_EQ(same.MakespanNs(), all.MakespanNs());
    steps.options.step.give_up_ns = static_cast<double>(took_ns) / 2;
    const Schedule part = steps.Run();
    EXPECT_GT(part.missing, 0);
    EXPECT_LT(part.MakespanNs(), all.MakespanNs());
  }
}

}  // namespace
}  // namespace roundhouse
