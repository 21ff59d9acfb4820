#include "scheduler/simulate/dispatcher_feed.h"

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/test_costs.h"
#include "scheduler/simulate/checker.h"
#include "scheduler/simulate/step_simulator.h"

namespace roundhouse {
namespace {

constexpr int64_t kMs = 1'000'000;

struct Step {
  ModelCosts costs = SmallModel(4);
  Machine machine;
  StepPlan plan;
  HostWork::Rounds rounds;
  StepOptions options;
  std::vector<DeviceLoss> losses;

  Step(int devices, int width, int micro_batches) {
    machine.devices.resize(devices);
    rounds.micro_batches = micro_batches;
    plan = UniformPlan(BlockByBlock(costs.layers), {width, width, width},
                       micro_batches, micro_batches);
  }

  std::vector<Part> Parts() const {
    return PartsOf(plan, rounds.micro_batches);
  }
  FedJob Fed() const { return {&costs, &plan, rounds}; }

  Schedule Run() const {
    DispatcherFeed feed({Fed()}, machine, {losses.empty()});
    return SimulateJobs(
        machine,
        {{&costs, RepeatedParts(Parts(), rounds.count(), rounds.micro_batches),
          rounds}},
        options, losses, feed);
  }

  std::string Verdict(const Schedule& schedule) const {
    CheckOptions check;
    check.machine = machine;
    check.micro_batches = rounds.micro_batches;
    return std::string(
        CheckStepSchedule(schedule, costs, check, options.contributions)
            .message());
  }
};

std::vector<int> DevicesOf(const std::vector<PartFeed::Sent>& sent) {
  std::vector<int> devices;
  for (const auto& entry : sent) devices.push_back(entry.device);
  return devices;
}

TEST(DispatcherFeedTest, AWorkerUploadsAsFarAsThePlanLooksAhead) {
  Step step(3, 1, 2);
  DispatcherFeed feed({step.Fed()}, step.machine, {});
  // Forward blocks are equal: the ring, two on each of three devices.
  EXPECT_EQ(DevicesOf(feed.TakeSent()), (std::vector<int>{0, 1, 2, 0, 1, 2}));
  EXPECT_TRUE(feed.TakeSent().empty());
  // Device 0 has its third part already, the first backward one but one: it
  // uploads that now.
  feed.Computed(0);
  const auto sent = feed.TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].part, 6);
  EXPECT_EQ(sent[0].device, 0);
}

TEST(DispatcherFeedTest, AStepIsGatheredReducedAndUpdated) {
  Step step(1, 1, 1);
  step.rounds.steps = 2;
  step.rounds.updates = Updates::kAsReduced;
  DispatcherFeed feed({step.Fed()}, step.machine, {});
  // The second round's rows wait for the embedding's update.
  auto tasks = feed.TakeHostTasks();
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0].kind, HostOpKind::kGather);
  EXPECT_EQ(tasks[0].round, 0);
  int reduced = 0, updated = 0, gathered = 1;
  // Nine parts a step, in order on one device.
  for (int part = 0; part < 18; ++part) {
    feed.TakeSent();
    feed.Computed(part);
    feed.Done(part);
    for (tasks = feed.TakeHostTasks(); !tasks.empty();
         tasks = feed.TakeHostTasks()) {
      for (const PartFeed::HostTask& task : tasks) {
        if (task.kind == HostOpKind::kGather) {
          ++gathered;
          EXPECT_EQ(part, 8);
          continue;
        }
        task.kind == HostOpKind::kReduce ? ++reduced : ++updated;
        feed.HostTaskDone(task);
      }
    }
    EXPECT_EQ(reduced, updated);
  }
  EXPECT_EQ(reduced, 2 * 5);
  EXPECT_EQ(gathered, 2);
}

TEST(DispatcherFeedTest, AnIsolatedStepIsNotUpdated) {
  const Schedule schedule = Step(2, 2, 4).Run();
  for (const Interval& interval : schedule.intervals) {
    EXPECT_NE(interval.kind, WorkKind::kOptimizer);
  }
}

// All of it, from its first interval to its last.
Interval Sum(const Schedule& schedule, WorkKind kind, int step, int layer) {
  Interval sum;
  sum.start_ns = std::numeric_limits<int64_t>::max();
  for (const Interval& interval : schedule.intervals) {
    if (interval.kind != kind || interval.step != step ||
        interval.layer_begin != layer) {
      continue;
    }
    sum.start_ns = std::min(sum.start_ns, interval.start_ns);
    sum.end_ns = std::max(sum.end_ns, interval.end_ns);
    sum.bytes += interval.bytes;
  }
  return sum;
}

TEST(DispatcherFeedTest, TheNextStepsRowsWaitForTheEmbeddingsUpdate) {
  Step step(2, 1, 4);
  step.rounds.steps = 2;
  step.rounds.updates = Updates::kClipped;
  const int64_t without_ns = step.Run().MakespanNs();
  step.costs.embedding_gradient_bytes = 3 * step.costs.head_gradient_bytes;
  const Schedule schedule = step.Run();
  EXPECT_GT(schedule.MakespanNs(), without_ns);
  const Interval reduce = Sum(schedule, WorkKind::kReduce, 0, kEmbedding);
  const Interval update = Sum(schedule, WorkKind::kOptimizer, 0, kEmbedding);
  EXPECT_GT(reduce.bytes, 0);
  EXPECT_GT(update.bytes, 0);
  EXPECT_GE(update.start_ns, reduce.end_ns);
  EXPECT_GE(Sum(schedule, WorkKind::kForward, 1, 0).start_ns, update.end_ns);
  EXPECT_GE(Sum(schedule, WorkKind::kOptimizer, 0, 0).start_ns, reduce.end_ns);
}

TEST(DispatcherFeedTest, ATiedHeadsShareIsReducedBeforeTheRows) {
  Step step(2, 1, 4);
  step.rounds.steps = 2;
  step.rounds.updates = Updates::kClipped;
  const int head = step.costs.head();
  const auto bytes = [&](WorkKind kind, int layer) {
    return Sum(step.Run(), kind, 0, layer).bytes;
  };
  const int64_t reduced = bytes(WorkKind::kReduce, head);
  const int64_t updated = bytes(WorkKind::kOptimizer, head);
  EXPECT_GT(reduced, 0);
  step.costs.tied_head = true;
  step.costs.embedding_gradient_bytes = step.costs.head_gradient_bytes;
  EXPECT_EQ(bytes(WorkKind::kReduce, head), 0);
  EXPECT_EQ(bytes(WorkKind::kOptimizer, head), 0);
  EXPECT_EQ(bytes(WorkKind::kReduce, kHeadShare), reduced);
  EXPECT_EQ(bytes(WorkKind::kReduce, kEmbedding), AddRowsBytes(step.costs, 4));
  EXPECT_EQ(bytes(WorkKind::kOptimizer, kEmbedding), updated);
  const Schedule schedule = step.Run();
  const Interval share = Sum(schedule, WorkKind::kReduce, 0, kHeadShare);
  const Interval rows = Sum(schedule, WorkKind::kReduce, 0, kEmbedding);
  EXPECT_LT(share.start_ns, Sum(schedule, WorkKind::kBackward, 0, 0).end_ns);
  EXPECT_GE(rows.start_ns, Sum(schedule, WorkKind::kBackward, 0, 0).end_ns);
}

// In one pass only what a tied embedding keeps is reduced by itself.
TEST(DispatcherFeedTest, InOnePassTheEmbeddingIsReducedByItself) {
  Step step(2, 2, 4);
  step.rounds.steps = 3;
  step.costs.tied_head = true;
  step.costs.embedding_gradient_bytes = step.costs.head_gradient_bytes;
  for (const Updates updates : {Updates::kOnePass, Updates::kOnePassStale}) {
    step.rounds.updates = updates;
    const Schedule schedule = step.Run();
    for (int s = 0; s < 3; ++s) {
      for (int layer = kHeadShare; layer < step.costs.head(); ++layer) {
        const Interval reduce = Sum(schedule, WorkKind::kReduce, s, layer);
        const Interval update = Sum(schedule, WorkKind::kOptimizer, s, layer);
        EXPECT_GT(reduce.bytes, 0) << layer;
        if (layer == kHeadShare) continue;  // updated as the embedding
        EXPECT_EQ(update.bytes, UpdateBytes(step.costs, layer, updates));
        EXPECT_TRUE(layer == kEmbedding || reduce.end_ns == update.start_ns)
            << layer;
      }
    }
  }
}

TEST(DispatcherFeedTest, TheHeadsShareOfARoundWaitsForTheRowsOfTheLast) {
  Step step(2, 2, 4);
  step.rounds.per_step = 2;
  step.rounds.updates = Updates::kClipped;
  step.costs.tied_head = true;
  // So much that it is still being reduced when the rows are there.
  step.costs.embedding_gradient_bytes = 200 * step.costs.head_gradient_bytes;
  const Schedule schedule = step.Run();
  std::vector<int> order;
  int64_t end_ns = 0;
  for (const Interval& interval : schedule.intervals) {
    if (interval.kind != WorkKind::kReduce || interval.layer_begin >= 0) {
      continue;
    }
    if (order.empty() || order.back() != interval.layer_begin) {
      EXPECT_GE(interval.start_ns, end_ns);
      order.push_back(interval.layer_begin);
    }
    end_ns = interval.end_ns;
  }
  EXPECT_EQ(order,
            (std::vector<int>{kHeadShare, kEmbedding, kHeadShare, kEmbedding}));
}

// As if workers told their slots' ends only.
TEST(DispatcherFeedTest, ReductionMayWaitForWholeParts) {
  Step step(2, 2, 4);
  Plan two_blocks;
  two_blocks.fused = true;
  two_blocks.forward = {{0, 3}};
  two_blocks.backward = {{4, 4}, {0, 3}};
  step.plan = UniformPlan(two_blocks, {2, 2, 2}, 4, 4);
  int64_t makespan_ns[2];
  for (const bool reports : {false, true}) {
    DispatcherFeed feed({step.Fed()}, step.machine, {reports});
    const Schedule schedule =
        SimulateJobs(step.machine, {{&step.costs, step.Parts(), step.rounds}},
                     step.options, {}, feed);
    EXPECT_EQ(step.Verdict(schedule), "");
    makespan_ns[reports ? 1 : 0] = schedule.MakespanNs();
  }
  EXPECT_LT(makespan_ns[1], makespan_ns[0]);
}

// --- losses ---

TEST(DispatcherFeedTest, AStepEndsOnTheDevicesThatAreLeft) {
  Step step(4, 4, 4);
  const Schedule whole = step.Run();
  ASSERT_EQ(step.Verdict(whole), "");
  step.losses = {{1, 15 * kMs}};
  const Schedule schedule = step.Run();
  EXPECT_EQ(step.Verdict(schedule), "");
  EXPECT_GT(schedule.MakespanNs(), whole.MakespanNs());
  bool lost = false, afterwards = false;
  for (const Interval& interval : schedule.intervals) {
    lost |= interval.lost;
    const bool on_lost = interval.resource.type != ResourceType::kHost &&
                         interval.resource.index == 1;
    EXPECT_TRUE(!on_lost || interval.end_ns <= 15 * kMs);
    afterwards |= !on_lost && interval.start_ns >= 15 * kMs;
  }
  EXPECT_TRUE(lost);
  EXPECT_TRUE(afterwards);
}

// Until the moment of the loss nothing differs.
TEST(DispatcherFeedTest, ALossAtTheEndCostsNothing) {
  Step step(2, 2, 4);
  const Schedule whole = step.Run();
  step.losses = {{0, whole.MakespanNs() + 1'000 * kMs}};
  const Schedule schedule = step.Run();
  for (const Interval& interval : schedule.intervals) {
    EXPECT_FALSE(interval.lost);
  }
  EXPECT_EQ(step.Verdict(schedule), "");
}

// What was given up does not count: without it the checker misses nothing, and
// without what came instead it does.
TEST(DispatcherFeedTest, TheCheckerCountsNothingTwice) {
  Step step(3, 3, 6);
  step.losses = {{2, 12 * kMs}};
  Schedule schedule = step.Run();
  ASSERT_EQ(step.Verdict(schedule), "");
  for (Interval& interval : schedule.intervals) interval.lost = false;
  EXPECT_NE(step.Verdict(schedule), "");
  schedule = step.Run();
  const auto redone = std::find_if(
      schedule.intervals.begin(), schedule.intervals.end(),
      [](const Interval& interval) {
        return IsCompute(interval.kind) && interval.start_ns > 12 * kMs;
      });
  ASSERT_NE(redone, schedule.intervals.end());
  redone->lost = true;
  EXPECT_NE(step.Verdict(schedule), "");
}

// The sums of a part that is given up may be down, of some of its layers.
TEST(DispatcherFeedTest, SumsThatAreDownAreNotSentAgain) {
  Step step(3, 1, 4);
  Plan stages;
  stages.fused = true;
  stages.forward = {{0, step.costs.layers - 1}};
  stages.backward = {{step.costs.layers, step.costs.layers},
                     {0, step.costs.layers - 1}};
  step.plan = UniformPlan(stages, {2, 2, 2}, 4, 4);
  const int64_t makespan_ns = step.Run().MakespanNs();
  int kept = 0;
  for (int64_t at = 1; at < 150; ++at) {
    step.losses = {{static_cast<int>(at % 3), at * makespan_ns / 150}};
    const Schedule schedule = step.Run();
    ASSERT_EQ(step.Verdict(schedule), "") << at;
    std::set<int> given_up;
    for (const Interval& interval : schedule.intervals) {
      if (interval.lost && interval.kind == WorkKind::kBackward) {
        given_up.insert(interval.attempt);
      }
    }
    for (size_t i = 0; i < schedule.intervals.size(); ++i) {
      const Interval& sums = schedule.intervals[i];
      if (sums.kind != WorkKind::kGradients || sums.lost ||
          given_up.count(sums.attempt) == 0) {
        continue;
      }
      ++kept;
      Schedule damaged = schedule;
      damaged.intervals[i].bytes /= 2;
      EXPECT_NE(step.Verdict(damaged), "");
      damaged = schedule;
      damaged.intervals[i].lost = true;
      EXPECT_NE(step.Verdict(damaged), "");
      damaged = schedule;
      damaged.intervals[i].start_ns = 0;
      EXPECT_NE(step.Verdict(damaged), "");
    }
  }
  EXPECT_GT(kept, 0);
}

TEST(DispatcherFeedTest, RandomLossesNeverStopAStep) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
    const int devices = 2 + below(5);
    Step step(devices, 1, 1 + below(8));
    step.costs = SmallModel(1 + below(6));
    step.machine.host_rate = 5.0 * (1 + below(40));
    for (SimulatedDevice& device : step.machine.devices) {
      if (below(4) == 0) device.speed = 0.5;
    }
    Plan stages = BlockByBlock(step.costs.layers);
    if (below(2) == 0) stages.saving.every = 2 + below(3);
    step.plan = UniformPlan(
        stages, {1 + below(devices), 1 + below(devices), 1 + below(devices)},
        step.rounds.micro_batches, 1 + below(step.rounds.micro_batches));
    step.plan.look_ahead = 1 + below(3);
    const int64_t makespan_ns = step.Run().MakespanNs();
    for (int d = 0; d + 1 < devices && below(3) != 0; ++d) {
      step.losses.push_back(
          {d, 1 + static_cast<int64_t>(random() % makespan_ns)});
    }
    ASSERT_EQ(step.Verdict(step.Run()), "") << ToString(step.plan);
  }
}

// --- two jobs ---

struct TwoJobs {
  Step first, second;
  Priority second_priority = Priority::kBackfill;

  Schedule Run() const {
    DispatcherFeed feed(
        {first.Fed(),
         {&second.costs, &second.plan, second.rounds, second_priority}},
        first.machine, {});
    return SimulateJobs(first.machine, {Simulated(first), Simulated(second)},
                        first.options, {}, feed);
  }

  std::string Verdict(const Schedule& schedule) const {
    return std::string(
        CheckJobsSchedule(schedule, {Check(first), Check(second)}).message());
  }

 private:
  static SimulatedJob Simulated(const Step& step) {
    return {&step.costs,
            RepeatedParts(step.Parts(), step.rounds.count(),
                          step.rounds.micro_batches),
            step.rounds};
  }
  JobCheck Check(const Step& step) const {
    return {&step.costs,
            {first.machine, step.rounds.micro_batches, step.rounds.steps,
             step.rounds.per_step, step.rounds.updates,
             Contributions::kModelDtype}};
  }
};

int64_t EndNs(const Schedule& schedule, int job) {
  int64_t end_ns = 0;
  for (const Interval& interval : schedule.intervals) {
    if (interval.job == job) end_ns = std::max(end_ns, interval.end_ns);
  }
  return end_ns;
}

TEST(DispatcherFeedTest, ABackfillJobTakesWhatIsLeft) {
  Step step(4, 1, 4);
  step.rounds.updates = Updates::kAsReduced;
  step.rounds.steps = 3;
  TwoJobs both{step, step};
  const int64_t alone_ns = EndNs(step.Run(), 0);
  const Schedule backfilled = both.Run();
  EXPECT_EQ(both.Verdict(backfilled), "");
  both.second_priority = Priority::kNormal;
  const Schedule shared = both.Run();
  EXPECT_EQ(both.Verdict(shared), "");
  EXPECT_LT(EndNs(backfilled, 0), EndNs(shared, 0));
  EXPECT_LT(EndNs(backfilled, 0), alone_ns * 5 / 4);
  // It ran in the first one's bubbles, too.
  EXPECT_LT(backfilled.MakespanNs(), 2 * alone_ns);
}

TEST(DispatcherFeedTest, RandomPairsAreSchedules) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
    const int devices = 1 + below(5);
    const auto job = [&] {
      Step step(devices, 1, 1 + below(6));
      step.costs = SmallModel(1 + below(5));
      if (below(3) == 0) step.costs.layer_gradient_bytes /= 100;
      if (below(4) == 0) step.costs.head_gradient_bytes = 0;
      const Updates modes[] = {Updates::kAsReduced, Updates::kClipped,
                               Updates::kOnePass};
      step.rounds.updates = modes[below(3)];
      step.rounds.steps = 1 + below(3);
      if (step.rounds.updates != Updates::kOnePass) {
        step.rounds.per_step = 1 + below(3);
      }
      Plan stages = BlockByBlock(step.costs.layers);
      if (below(2) == 0) stages.saving.every = 2 + below(3);
      step.plan = UniformPlan(
          stages, {1 + below(devices), 1 + below(devices), 1 + below(devices)},
          step.rounds.micro_batches, 1 + below(step.rounds.micro_batches));
      return step;
    };
    TwoJobs both{job(), job()};
    both.first.machine.host_rate = 5.0 * (1 + below(40));
    both.first.options.backfill_grace_ns = below(3) * kMs;
    if (below(3) == 0) both.second_priority = Priority::kNormal;
    ASSERT_EQ(both.Verdict(both.Run()), "");
  }
}

}  // namespace
}  // namespace roundhouse
