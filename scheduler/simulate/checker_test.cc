// A sound schedule passes; broken in any one way it does not, and the message
// names what is wrong.
#include "scheduler/simulate/checker.h"

#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"
#include "tests/published/baselines.h"

namespace roundhouse {
namespace {

constexpr int kDevices = 2;
constexpr int kMicroBatches = 3;

CheckOptions Options() {
  CheckOptions options;
  options.machine.devices.resize(kDevices);
  options.micro_batches = kMicroBatches;
  return options;
}

// Two layers in the fused stage, so that every kind of compute but the head's
// own occurs; the head's own in a second schedule.
Schedule Fused() {
  Plan plan;
  plan.fused = true;
  plan.forward = {{0, 1}};
  plan.backward = {{2, 4}, {0, 1}};
  return *SimulateRoundpipe(SmallModel(4), plan, kDevices, kMicroBatches);
}

Schedule Gpipe() {
  return *SimulatePlacedBaseline(Baseline::kGpipe, SmallModel(4),
                                 {{0, 1}, {2, 4}}, kDevices, kMicroBatches);
}

std::string Verdict(const Schedule& schedule) {
  return std::string(
      CheckPublishedSchedule(schedule, SmallModel(4), Options()).message());
}

Interval& Find(Schedule& schedule, WorkKind kind, int micro_batch) {
  for (Interval& interval : schedule.intervals) {
    if (interval.kind == kind && interval.micro_batch == micro_batch) {
      return interval;
    }
  }
  ADD_FAILURE() << "no " << WorkKindName(kind);
  return schedule.intervals[0];
}

void ExpectSeen(Schedule schedule, WorkKind kind, const std::string& why,
                const std::function<void(Interval&)>& damage) {
  ASSERT_EQ(Verdict(schedule), "");
  damage(Find(schedule, kind, 1));
  const std::string verdict = Verdict(schedule);
  EXPECT_NE(verdict.find(why), verdict.npos) << verdict;
}

void Move(Interval& interval, int64_t by_ns) {
  interval.start_ns += by_ns;
  interval.end_ns += by_ns;
}

TEST(CheckerTest, AWrongLengthIsSeen) {
  for (const WorkKind kind : {WorkKind::kForward, WorkKind::kFused,
                              WorkKind::kRecompute, WorkKind::kBackward}) {
    ExpectSeen(Fused(), kind, "the costs say",
               [](Interval& interval) { --interval.end_ns; });
  }
  for (const WorkKind kind :
       {WorkKind::kHeadForward, WorkKind::kHeadBackward}) {
    ExpectSeen(Gpipe(), kind, "the costs say",
               [](Interval& interval) { --interval.end_ns; });
  }
}

TEST(CheckerTest, ASlowDeviceTakesLonger) {
  CheckOptions options = Options();
  options.machine.devices[1].speed = 0.5;
  EXPECT_FALSE(CheckPublishedSchedule(Gpipe(), SmallModel(4), options).ok());
}

TEST(CheckerTest, WhatDoesNotExistIsSeen) {
  const auto forward = WorkKind::kForward;
  ExpectSeen(Fused(), forward, "no such resource",
             [](Interval& interval) { interval.resource.index = kDevices; });
  ExpectSeen(
      Fused(), forward, "not the work of this resource",
      [](Interval& interval) { interval.resource.type = ResourceType::kH2d; });
  ExpectSeen(Fused(), forward, "no such layers",
             [](Interval& interval) { interval.layer_end = 5; });
  ExpectSeen(Fused(), forward, "no such layers",
             [](Interval& interval) { interval.layer_begin = -1; });
  ExpectSeen(Fused(), forward, "no such micro-batch",
             [](Interval& interval) { interval.micro_batch = kMicroBatches; });
  ExpectSeen(Fused(), forward, "ends before it starts",
             [](Interval& interval) { interval.end_ns = 0; });
  ExpectSeen(Fused(), forward, "no transfers",
             [](Interval& interval) { interval.kind = WorkKind::kWeights; });
}

TEST(CheckerTest, WorkDoneTwiceIsSeen) {
  ExpectSeen(Fused(), WorkKind::kForward, "a second time",
             [](Interval& interval) { interval.micro_batch = 0; });
  ExpectSeen(Fused(), WorkKind::kFused, "a second time",
             [](Interval& interval) { interval.micro_batch = 0; });
}

TEST(CheckerTest, MissingWorkIsSeen) {
  const std::pair<WorkKind, const char*> cases[] = {
      {WorkKind::kForward, "never run forward"},
      {WorkKind::kFused, "never run"},
      {WorkKind::kBackward, "never run backward"},
      {WorkKind::kRecompute, "not recomputed"}};
  for (const auto& [kind, why] : cases) {
    Schedule schedule = Fused();
    Interval& victim = Find(schedule, kind, 1);
    schedule.intervals.erase(schedule.intervals.begin() +
                             (&victim - schedule.intervals.data()));
    const std::string verdict = Verdict(schedule);
    EXPECT_NE(verdict.find(why), verdict.npos) << verdict;
  }
}

TEST(CheckerTest, RecomputeOfAFusedLayerIsSeen) {
  Schedule schedule = Fused();
  Interval extra = Find(schedule, WorkKind::kRecompute, 1);
  extra.layer_begin = 2;
  extra.layer_end = 4;
  Move(extra, 1'000'000'000);
  schedule.intervals.push_back(extra);
  const std::string verdict = Verdict(schedule);
  EXPECT_NE(verdict.find("is recomputed before it"), verdict.npos) << verdict;
}

TEST(CheckerTest, OverlapIsSeen) {
  ExpectSeen(Fused(), WorkKind::kForward, "overlaps",
             [](Interval& interval) { Move(interval, -1); });
}

// Device 1 waits for the fused slot's input, device 0 for its gradient.
TEST(CheckerTest, AnEarlyStartIsSeen) {
  Schedule early = Fused();
  Move(Find(early, WorkKind::kFused, 0), -1);
  const std::string input = Verdict(early);
  EXPECT_NE(input.find("before its input of layer 2"), input.npos) << input;
  Schedule schedule = Fused();
  Move(Find(schedule, WorkKind::kRecompute, 0), -1);
  EXPECT_EQ(Verdict(schedule), "");
  Move(Find(schedule, WorkKind::kBackward, 0), -1);
  const std::string verdict = Verdict(schedule);
  EXPECT_NE(verdict.find("before its gradient of layer 2"), verdict.npos)
      << verdict;
}

TEST(CheckerTest, AHeadOnTwoDevicesIsSeen) {
  Schedule schedule = Gpipe();
  for (Interval& interval : schedule.intervals) {
    const bool last = interval.micro_batch == kMicroBatches - 1;
    if (!last || interval.direction == PassDirection::kForward) continue;
    const bool head = interval.kind == WorkKind::kHeadBackward;
    Move(interval, head ? 1'000'000'000 : 1'001'000'000);
    if (head) interval.resource.index = 0;
  }
  const std::string verdict = Verdict(schedule);
  EXPECT_NE(verdict.find("not on the device of"), verdict.npos) << verdict;
}

TEST(CheckerTest, AnotherDevicesRecomputeIsSeen) {
  ExpectSeen(Fused(), WorkKind::kRecompute, "not on the device of",
             [](Interval& interval) {
               interval.resource.index = 1 - interval.resource.index;
               Move(interval, 1'000'000'000);
             });
  ExpectSeen(Fused(), WorkKind::kBackward, "not on the device of",
             [](Interval& interval) {
               interval.resource.index = 1 - interval.resource.index;
               Move(interval, 1'000'000'000);
             });
}

}  // namespace
}  // namespace roundhouse
