// What the plans for consecutive steps reach on the published models.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"
#include "scheduler/search/step_bound.h"
#include "scheduler/search/step_search.h"
#include "scheduler/simulate/checker.h"

namespace roundhouse {
namespace {

constexpr int kSteps = 10;
constexpr int kMicroBatches = 16;
constexpr int kRounds[] = {1, 4, 8};

std::vector<ModelCosts> Models() {
  std::ifstream file("scheduler/testdata/bubble_inputs.csv");
  std::stringstream text;
  text << file.rdbuf();
  return *ParseModelCosts("bubble_inputs.csv", text.str());
}

Machine EightDevices() {
  Machine machine;
  machine.devices.resize(8);
  return machine;
}

// A step of ten, in nanoseconds; the schedule passed the checker.
double StepNs(const ModelCosts& costs, Updates updates, int rounds,
              FusedSlots fused = FusedSlots::kWhole) {
  const Machine machine = EightDevices();
  SearchOptions search;
  search.updates = updates;
  search.rounds = rounds;
  search.fused = fused;
  const auto found = SearchStepPlan(costs, machine, kMicroBatches, search);
  EXPECT_TRUE(found.ok()) << found.status();
  StepsOptions steps;
  steps.steps = kSteps;
  steps.rounds = rounds;
  steps.updates = updates;
  steps.step.fused = fused;
  // Splitting intervals changes no time, but what the checker has to read.
  steps.step.intervals = rounds == 1 ? Intervals::kByRate : Intervals::kWhole;
  const auto schedule =
      SimulateSteps(costs, machine, found->plan, kMicroBatches, steps);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  if (rounds == 1) {
    EXPECT_EQ(CheckStepsSchedule(*schedule, costs,
                                 {machine, kMicroBatches, kSteps, rounds,
                                  updates, Contributions::kModelDtype}),
              absl::OkStatus());
  }
  return static_cast<double>(schedule->MakespanNs()) / kSteps;
}

double LeastNs(const ModelCosts& costs, Updates updates, int rounds) {
  return BoundOf(costs, EightDevices(),
                 {kMicroBatches, rounds, updates, Contributions::kModelDtype})
      .ns;
}

TEST(StepsSearchTest, SynchronousStepsComeCloseToTheirBound) {
  const double percent[][3] = {
      {97, 97, 97}, {97, 97, 97}, {94, 97, 97}, {97, 97, 97}, {97, 97, 97}};
  const std::vector<ModelCosts> models = Models();
  for (size_t i = 0; i < models.size(); ++i) {
    for (int j = 0; j < 3; ++j) {
      const int rounds = kRounds[j];
      SCOPED_TRACE(testing::Message() << models[i].name << " " << rounds);
      const double step_ns = StepNs(models[i], Updates::kAsReduced, rounds);
      EXPECT_GE(LeastNs(models[i], Updates::kAsReduced, rounds) / step_ns,
                percent[i][j] / 100);
    }
  }
}

TEST(StepsSearchTest, StepsInOnePassComeCloseToTheirBound) {
  for (const ModelCosts& costs : Models()) {
    SCOPED_TRACE(costs.name);
    const double least = costs.name == "gpt-oss-20b" ? 0.94 : 0.97;
    EXPECT_GE(LeastNs(costs, Updates::kOnePass, 1) /
                  StepNs(costs, Updates::kOnePass, 1),
              least);
  }
}

// The plan that is found for one pass is not slower there than the one that is
// found for two.  (With qwen3-1.7b it was, by 0.5 %, before other kinds of
// plans were improved, too.)
TEST(StepsSearchTest, PlansForOnePassAreThoseForIt) {
  const Machine machine = EightDevices();
  for (const ModelCosts& costs : Models()) {
    SCOPED_TRACE(costs.name);
    SearchOptions search;
    search.updates = Updates::kAsReduced;
    const auto two = SearchStepPlan(costs, machine, kMicroBatches, search);
    ASSERT_TRUE(two.ok()) << two.status();
    search.updates = Updates::kOnePass;
    const auto one = SearchStepPlan(costs, machine, kMicroBatches, search);
    ASSERT_TRUE(one.ok()) << one.status();
    const auto other_ns =
        SimulatedStepNs(costs, machine, two->plan, kMicroBatches, search);
    ASSERT_TRUE(other_ns.ok()) << other_ns.status();
    EXPECT_LE(one->step_ns, *other_ns);
  }
}

// Where the turn-around of layer 0 is less than 2 % of the step.
TEST(StepsSearchTest, StalenessGainsLittle) {
  for (const ModelCosts& costs : Models()) {
    SCOPED_TRACE(costs.name);
    const BoundOptions bound{kMicroBatches, 1, Updates::kAsReduced,
                             Contributions::kModelDtype};
    const double step_ns = StepNs(costs, Updates::kAsReduced, 1);
    if (TurnAroundNs(costs, EightDevices(), bound) > 0.02 * step_ns) continue;
    EXPECT_LE(step_ns, 1.03 * StepNs(costs, Updates::kStale, 1));
  }
}

// In one pass and layer by layer, as the daemon computes.
TEST(StepsSearchTest, StalenessGainsLittleInOnePass) {
  for (const ModelCosts& costs : Models()) {
    SCOPED_TRACE(costs.name);
    const BoundOptions bound{kMicroBatches, 1, Updates::kOnePass,
                             Contributions::kModelDtype};
    const FusedSlots fused = FusedSlots::kByLayer;
    const double step_ns = StepNs(costs, Updates::kOnePass, 1, fused);
    if (TurnAroundNs(costs, EightDevices(), bound) > 0.02 * step_ns) continue;
    EXPECT_LE(step_ns, 1.03 * StepNs(costs, Updates::kOnePassStale, 1, fused));
  }
}

// Clipped, a step pays for the updates that no forward hides.
TEST(StepsSearchTest, ClippedStepsComeCloseToTheirBound) {
  for (const ModelCosts& costs : Models()) {
    SCOPED_TRACE(costs.name);
    EXPECT_GE(LeastNs(costs, Updates::kClipped, 1) /
                  StepNs(costs, Updates::kClipped, 1),
              0.91);
  }
}

TEST(StepsSearchTest, TheSameArgumentsGiveTheSamePlan) {
  SearchOptions options;
  options.updates = Updates::kAsReduced;
  options.rounds = 4;
  const ModelCosts costs = SmallModel(10);
  const auto first = SearchStepPlan(costs, EightDevices(), 12, options);
  const auto second = SearchStepPlan(costs, EightDevices(), 12, options);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->shape, second->shape);
  EXPECT_EQ(first->step_ns, second->step_ns);
}

// What the search predicts is what ten steps show, but for their first fill.
TEST(StepsSearchTest, ThePredictionHolds) {
  const Machine machine = EightDevices();
  const ModelCosts costs = SmallModel(10);
  for (const int rounds : {1, 2, 5}) {
    SCOPED_TRACE(rounds);
    SearchOptions options;
    options.updates = Updates::kAsReduced;
    options.rounds = rounds;
    const auto found = SearchStepPlan(costs, machine, 16, options);
    ASSERT_TRUE(found.ok()) << found.status();
    StepsOptions steps;
    steps.steps = kSteps;
    steps.rounds = rounds;
    const auto schedule = SimulateSteps(costs, machine, found->plan, 16, steps);
    EXPECT_NEAR(static_cast<double>(schedule->MakespanNs()) / kSteps,
                static_cast<double>(found->step_ns),
                0.02 * static_cast<double>(found->step_ns));
  }
}

}  // namespace
}  // namespace roundhouse
