// A schedule with transfers passes the checker; damaged in any one way it does
// not, and the message says what is wrong.
#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"
#include "scheduler/simulate/checker.h"
#include "scheduler/simulate/device_memory.h"
#include "scheduler/simulate/step_simulator.h"

namespace roundhouse {
namespace {

constexpr int kMicroBatches = 4;
constexpr int64_t kSecond = 1'000'000'000;

CheckOptions Options() {
  CheckOptions options;
  options.machine.devices.resize(2);
  options.micro_batches = kMicroBatches;
  return options;
}

Plan Stages() {
  Plan stages;
  stages.fused = true;
  stages.forward = {{0, 1}, {2, 2}};
  stages.backward = {{3, 4}, {1, 2}, {0, 0}};
  return stages;
}

// Every slot on both devices, so that all dependencies are within one.
Schedule Wide() {
  return *SimulateStep(SmallModel(4), Options().machine,
                       UniformPlan(Stages(), {2, 2, 2}, kMicroBatches, 4),
                       kMicroBatches, {});
}

std::string Verdict(const Schedule& schedule,
                    const CheckOptions& options = Options()) {
  return std::string(CheckStepSchedule(schedule, SmallModel(4), options,
                                       Contributions::kModelDtype)
                         .message());
}

using Wanted = std::function<bool(const Interval&)>;
using Damage = std::function<void(Interval&)>;

Wanted Of(WorkKind kind, ResourceType type) {
  return [=](const Interval& interval) {
    return interval.kind == kind && interval.resource.type == type;
  };
}

// Damages the first interval that is wanted.
void ExpectSeen(const Wanted& wanted, const std::string& why,
                const Damage& damage) {
  Schedule schedule = Wide();
  ASSERT_EQ(Verdict(schedule), "");
  for (Interval& interval : schedule.intervals) {
    if (!wanted(interval)) continue;
    damage(interval);
    const std::string verdict = Verdict(schedule);
    EXPECT_NE(verdict.find(why), verdict.npos) << verdict;
    return;
  }
  ADD_FAILURE() << "nothing to damage for " << why;
}

void ExpectMissed(const Wanted& wanted, const std::string& why) {
  Schedule schedule = Wide();
  const size_t removed = std::erase_if(schedule.intervals, wanted);
  ASSERT_GT(removed, 0u) << why;
  const std::string verdict = Verdict(schedule);
  EXPECT_NE(verdict.find(why), verdict.npos) << verdict;
}

void Delay(Interval& interval) {
  interval.start_ns += kSecond;
  interval.end_ns += kSecond;
}

TEST(StepCheckerTest, MissingTransfersAreSeen) {
  ExpectMissed(Of(WorkKind::kWeights, ResourceType::kH2d),
               "bytes of weights went up");
  ExpectMissed(Of(WorkKind::kGradients, ResourceType::kD2h),
               "not whole contributions");
  ExpectMissed(Of(WorkKind::kReduce, ResourceType::kHost), "reducing it moves");
  ExpectMissed(Of(WorkKind::kActivations, ResourceType::kH2d),
               "does not cross h2d:");
  ExpectMissed(Of(WorkKind::kActivations, ResourceType::kD2h),
               "does not cross d2h:");
}

TEST(StepCheckerTest, OneMissingActivationIsSeen) {
  // A forward stage's input, one that only a recompute needs, a gradient, and
  // the embedding's gradient.
  const std::tuple<int, PassDirection, const char*> cases[] = {
      {0, PassDirection::kForward, "what it needs at layer 0"},
      {1, PassDirection::kForward, "what it needs at layer 1"},
      {3, PassDirection::kBackward, "what it needs at layer 3"},
      {0, PassDirection::kBackward, "the embedding's gradient"}};
  for (const auto& [layer, direction, why] : cases) {
    ExpectMissed(
        [layer = layer, direction = direction](const Interval& interval) {
          return interval.kind == WorkKind::kActivations &&
                 interval.layer_begin == layer &&
                 interval.direction == direction && interval.micro_batch == 1;
        },
        why);
  }
}

TEST(StepCheckerTest, LateTransfersAreSeen) {
  ExpectSeen(Of(WorkKind::kWeights, ResourceType::kH2d), "too late", Delay);
  ExpectSeen(Of(WorkKind::kActivations, ResourceType::kH2d), "is there, at",
             Delay);
  ExpectSeen(Of(WorkKind::kActivations, ResourceType::kD2h),
             "does not cross h2d:", Delay);
  ExpectSeen(Of(WorkKind::kGradients, ResourceType::kD2h),
             "reduced before its last contribution", Delay);
}

TEST(StepCheckerTest, EarlyTransfersAreSeen) {
  ExpectSeen(Of(WorkKind::kGradients, ResourceType::kD2h),
             "before its last backward", [](Interval& interval) {
               interval.end_ns -= interval.start_ns;
               interval.start_ns = 0;
             });
  ExpectSeen(
      [](const Interval& interval) {
        return interval.kind == WorkKind::kActivations &&
               interval.direction == PassDirection::kBackward &&
               interval.layer_begin == 0;
      },
      "before it is made",
      [](Interval& interval) {
        // Onto the other link's idle beginning.
        interval.end_ns -= interval.start_ns;
        interval.start_ns = 0;
      });
}

TEST(StepCheckerTest, WrongBytesAreSeen) {
  ExpectSeen(Of(WorkKind::kWeights, ResourceType::kH2d),
             "bytes of weights went up",
             [](Interval& interval) { interval.bytes -= 1; });
  ExpectSeen(Of(WorkKind::kGradients, ResourceType::kD2h),
             "not whole contributions",
             [](Interval& interval) { interval.bytes -= 1; });
  ExpectSeen(Of(WorkKind::kReduce, ResourceType::kHost), "reducing it moves",
             [](Interval& interval) { interval.bytes -= 1; });
  ExpectSeen(
      Of(WorkKind::kActivations, ResourceType::kD2h),
      "does not cross d2h:", [](Interval& interval) { interval.bytes -= 1; });
}

TEST(StepCheckerTest, UselessWeightsAreSeen) {
  Schedule schedule = Wide();
  Interval extra;
  extra.resource = {ResourceType::kH2d, 0};
  extra.kind = WorkKind::kWeights;
  extra.layer_begin = 3;  // has no forward slot
  extra.layer_end = 4;
  extra.start_ns = kSecond;
  extra.end_ns = 2 * kSecond;
  extra.bytes = 21'000'000;
  schedule.intervals.push_back(extra);
  EXPECT_EQ(Verdict(schedule),
            "layer 3: its weights go up to device 0 for no use");
}

TEST(StepCheckerTest, TooFastLinksAndMemoryAreSeen) {
  CheckOptions options = Options();
  options.machine.link_rate = 20;
  EXPECT_NE(Verdict(Wide(), options).find("more than 20 a nanosecond"),
            std::string::npos);
  // Two uploads at once, and no reduction, which alone would be too fast.
  ModelCosts frozen = SmallModel(4);
  frozen.layer_gradient_bytes = frozen.head_gradient_bytes = 0;
  options = Options();
  const auto schedule = *SimulateStep(
      frozen, options.machine,
      UniformPlan(Stages(), {2, 2, 2}, kMicroBatches, 4), kMicroBatches, {});
  options.machine.host_rate = 41;
  const auto status =
      CheckStepSchedule(schedule, frozen, options, Contributions::kModelDtype);
  EXPECT_NE(status.message().find("all transfers together"),
            status.message().npos)
      << status;
}

// One device, one stage of all layers, by layer.
Schedule OneStage(const CheckOptions& options) {
  Plan plan;
  plan.fused = true;
  plan.backward = {{0, 4}};
  StepOptions by_layer;
  by_layer.fused = FusedSlots::kByLayer;
  return *SimulateStep(SmallModel(4), options.machine,
                       UniformPlan(plan, {1, 1, 1}, options.micro_batches, 1),
                       options.micro_batches, by_layer);
}

// The first micro-batch's backward after the second one: what it needs is gone.
TEST(StepCheckerTest, AForwardThatIsNotKeptIsSeen) {
  CheckOptions options = Options();
  options.machine.devices.resize(1);
  options.micro_batches = 2;
  Schedule schedule = OneStage(options);
  ASSERT_EQ(Verdict(schedule, options), "");
  for (Interval& interval : schedule.intervals) {
    if (interval.kind != WorkKind::kBackward || interval.micro_batch != 0) {
      continue;
    }
    interval.start_ns += kSecond;
    interval.end_ns += kSecond;
  }
  EXPECT_NE(Verdict(schedule, options).find("not recomputed before it"),
            std::string::npos)
      << Verdict(schedule, options);
}

// While the head runs backward there are all layers' weights and inner
// activations, and its sum.
TEST(StepCheckerTest, WhatAFusedPartKeepsTakesMemory) {
  const ModelCosts costs = SmallModel(4);
  CheckOptions options = Options();
  options.machine.devices.resize(1);
  options.micro_batches = 1;
  const Schedule schedule = OneStage(options);
  int64_t& memory = options.machine.devices[0].memory_bytes;
  memory = BoundaryBufferBytes(costs);
  for (int layer = 0; layer <= costs.head(); ++layer) {
    memory += costs.WeightBytes(layer) + ActivationBytes(costs, layer);
  }
  memory += SumBytes(costs, costs.head());
  EXPECT_EQ(Verdict(schedule, options), "");
  --memory;
  EXPECT_NE(Verdict(schedule, options).find("device 0 holds"),
            std::string::npos)
      << Verdict(schedule, options);
}

TEST(StepCheckerTest, FullDevicesAreSeen) {
  CheckOptions options = Options();
  options.machine.devices[1].memory_bytes = 100'000'000;
  EXPECT_NE(Verdict(Wide(), options).find("device 1 holds"), std::string::npos)
      << Verdict(Wide(), options);
}

}  // namespace
}  // namespace roundhouse
