#include "scheduler/search/step_estimate.h"

#include <vector>

#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"
#include "scheduler/search/step_search.h"
#include "scheduler/simulate/part_feed.h"

namespace roundhouse {
namespace {

constexpr int kMicroBatches = 16;

struct Estimated {
  Schedule schedule;
  double estimate_ns = 0;
  int64_t host_bytes = 0;
};

Estimated EstimateAndSimulate(const PlanShape& shape, const ModelCosts& costs,
                              const Machine& machine) {
  const StepPlan plan = ShapePlan(shape, costs, machine, kMicroBatches);
  const auto parts = PartsOf(plan, kMicroBatches);
  const auto devices = AssignDevices(parts, costs, machine);
  Estimated result;
  result.estimate_ns = EstimateStepNs(
      parts, devices, costs, machine,
      {.micro_batches = kMicroBatches, .look_ahead = plan.look_ahead});
  result.host_bytes =
      HostBytes(parts, costs, Contributions::kModelDtype, Updates::kNone);
  const auto schedule = SimulateStep(costs, machine, plan, kMicroBatches, {});
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  result.schedule = *schedule;
  return result;
}

std::vector<PlanShape> Shapes() {
  std::vector<PlanShape> shapes;
  for (const int tail : {0, 3}) {
    for (const int layers : {1, 2}) {
      for (const int width : {1, 2, 4}) {
        PlanShape shape;
        shape.fused_layers = tail;
        shape.forward_layers = shape.backward_layers = layers;
        shape.widths = {width, 4, width};
        shape.groups = 4;
        shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

TEST(StepEstimateTest, IsCloseToTheSimulation) {
  const ModelCosts costs = SmallModel(12);
  Machine machine;
  machine.devices.resize(4);
  for (const PlanShape& shape : Shapes()) {
    const Estimated run = EstimateAndSimulate(shape, costs, machine);
    const auto step_ns = static_cast<double>(run.schedule.MakespanNs());
    EXPECT_NEAR(run.estimate_ns / step_ns, 1, 0.02)
        << ToString(ShapePlan(shape, costs, machine, kMicroBatches));
  }
}

// Forward and backward stages begin at the same layers, so no input is saved
// on the way.
TEST(StepEstimateTest, CountsWhatTheSimulationMoves) {
  const ModelCosts costs = SmallModel(12);
  Machine machine;
  machine.devices.resize(4);
  for (const PlanShape& shape : Shapes()) {
    const Estimated run = EstimateAndSimulate(shape, costs, machine);
    int64_t moved = 0;
    for (const Interval& interval : run.schedule.intervals) {
      moved += interval.bytes;
    }
    EXPECT_EQ(run.host_bytes, moved);
  }
}

// What a long fused tail leaves behind, its sums and updates, keeps host memory
// busy while little is left to compute before the tail's next weights go up:
// counted over the whole step nothing would seem crowded.
TEST(StepEstimateTest, AFusedTailHasToBeUpdatedBeforeItsNextWeights) {
  const ModelCosts costs = SmallModel(12);
  Machine machine;
  machine.devices.resize(4);
  machine.host_rate = 80;
  SearchOptions options;
  options.updates = Updates::kAsReduced;
  const BoundOptions bound{kMicroBatches, 1, options.updates,
                           options.contributions};
  for (const int tail : {2, 6, 9, 11}) {
    PlanShape shape;
    shape.fused_layers = tail;
    shape.widths = {4, 4, 4};
    shape.groups = 4;
    const StepPlan plan = ShapePlan(shape, costs, machine, kMicroBatches);
    const auto parts = PartsOf(plan, kMicroBatches);
    const Estimated run = EstimateAndSimulate(shape, costs, machine);
    const auto step_ns = static_cast<double>(
        *SimulatedStepNs(costs, machine, plan, kMicroBatches, options));
    EXPECT_NEAR(EstimateStepsNs(parts, run.estimate_ns, costs, machine, bound,
                                FusedSlots::kWhole) /
                    step_ns,
                1, 0.03)
        << tail;
  }
}

TEST(StepEstimateTest, IsNeverLessThanTheHostBytesTake) {
  const ModelCosts costs = SmallModel(12);
  Machine machine;
  machine.devices.resize(4);
  machine.host_rate = 10;
  PlanShape shape;
  shape.widths = {4, 4, 4};
  shape.groups = 4;
  const Estimated run = EstimateAndSimulate(shape, costs, machine);
  EXPECT_GE(run.estimate_ns, static_cast<double>(run.host_bytes) / 10);
}

}  // namespace
}  // namespace roundhouse
