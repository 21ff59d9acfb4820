#include "server/planning/slot_costs.h"

#include <cstdint>
#include <deque>
#include <random>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "scheduler/dispatch/dispatcher.h"
#include "scheduler/plan/contribution_blocks.h"
#include "scheduler/plan/cost_model.h"

namespace roundhouse {
namespace {

constexpr JobId kJob{1};

void Observe(CostModel& model, int layer, LayerPass pass, double ns) {
  ASSERT_TRUE(model.Observe(layer, pass, absl::Nanoseconds(ns)).ok());
}

// A step in which layers take that: recomputed, and in their backward pass
// twice as long.
void Step(CostModel& model, const std::vector<double>& ns) {
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    Observe(model, layer, LayerPass::kRecompute, ns[layer]);
    Observe(model, layer, LayerPass::kBackward, 2 * ns[layer]);
  }
  model.EndStep();
}

CostModel Measured(const std::vector<double>& ns) {
  CostModel model(std::vector<int64_t>(ns.size(), 1000));
  Step(model, ns);  // dropped
  Step(model, ns);
  return model;
}

TEST(SlotCostsTest, NoneBeforeTheyAreMeasured) {
  CostModel model({1000, 1000});
  EXPECT_TRUE(MicroBatchCosts(model).empty());
  Step(model, {1, 1});
  EXPECT_TRUE(MicroBatchCosts(model).empty());
  Step(model, {1, 1});
  EXPECT_EQ(MicroBatchCosts(model).size(), 2u);
}

TEST(SlotCostsTest, LayersOfOneKindCostTheSameAndAsMuchTogether) {
  const auto costs = MicroBatchCosts(Measured({990, 1010, 1000, 4000, 1020}));
  for (const int layer : {0, 1, 2, 4}) {
    EXPECT_DOUBLE_EQ(costs[layer].forward_ns, 1005);
    EXPECT_DOUBLE_EQ(costs[layer].backward_ns, 3 * 1005);
  }
  EXPECT_DOUBLE_EQ(costs[3].forward_ns, 4000);
  EXPECT_DOUBLE_EQ(costs[3].backward_ns, 12'000);
}

// Such as those with a sliding window and those without.
TEST(SlotCostsTest, LayersOfTwoKindsStayTwo) {
  const auto costs = MicroBatchCosts(Measured({1000, 1200, 1010, 1210, 1000}));
  EXPECT_EQ(costs[0].forward_ns, costs[2].forward_ns);
  EXPECT_EQ(costs[1].forward_ns, costs[3].forward_ns);
  EXPECT_NEAR(costs[0].forward_ns, 1003, 1);
  EXPECT_NEAR(costs[1].forward_ns, 1205, 1);
}

// Forward slots never run the fused layers; an evaluation does.
TEST(SlotCostsTest, AForwardPassIsARecomputationUntilItIsMeasured) {
  CostModel model = Measured({1000, 1000});
  for (int i = 0; i < 2; ++i) {
    Observe(model, 0, LayerPass::kForward, 900);
    model.EndStep();
  }
  EXPECT_EQ(MicroBatchCosts(model)[0].forward_ns, 1000);
  for (int i = 0; i < 2; ++i) {
    Observe(model, 1, LayerPass::kForward, 900);
    model.EndStep();
  }
  EXPECT_EQ(MicroBatchCosts(model)[0].forward_ns, 900);
}

// The plan of docs/design/measurements.md's eight devices without clipping,
// smaller: a layer a stage, each on two devices, the fused one on all.
StepSpec Spec(const std::vector<MicroBatchCost>& costs) {
  StepSpec spec;
  Plan& plan = spec.plan;
  plan.fused = true;
  for (int layer = 0; layer < 8; ++layer) {
    plan.forward.push_back({layer, layer});
    plan.split.push_back({4, 4});
  }
  plan.backward.push_back({8, 12});
  plan.split.push_back(std::vector<int>(8, 1));
  for (int layer = 7; layer >= 0; --layer) {
    plan.backward.push_back({layer, layer});
    plan.split.push_back({4, 4});
  }
  spec.groups = 8;
  spec.round_micro_batches = {16};
  spec.blocks = BlocksOf(plan, 1, 3 * 8);
  spec.boundary_blocks = 16 * BoundaryTensors(plan, RowGradient::kRead, 3 * 8);
  spec.layer_costs = costs;
  return spec;
}

// The devices of the slots of six steps, in the order in which they are sent;
// they end in it, too.  `costs`: of each step.
std::vector<int> DevicesOf(
    const std::vector<std::vector<MicroBatchCost>>& costs) {
  Dispatcher dispatcher{DispatcherOptions{}};
  dispatcher.AddJob(kJob, {13, 14, false, {}});
  dispatcher.HostUp();
  for (int d = 0; d < 8; ++d) dispatcher.DeviceUp(static_cast<DeviceId>(d));
  std::vector<int> devices;
  std::deque<SlotId> sent;
  size_t begun = 0;
  const auto begin = [&] {
    if (begun < costs.size()) dispatcher.BeginStep(kJob, Spec(costs[begun++]));
  };
  begin();
  begin();
  while (true) {
    for (auto actions = dispatcher.TakeActions(); !actions.empty();
         actions = dispatcher.TakeActions()) {
      for (const Action& action : actions) {
        if (const auto* slot = std::get_if<RunSlotAction>(&action)) {
          devices.push_back(static_cast<int>(Number(slot->device)));
          sent.push_back(slot->slot);
        } else if (const auto* op = std::get_if<RunHostOpAction>(&action)) {
          dispatcher.HostOpDone(op->op);
        } else if (std::holds_alternative<StepDoneAction>(action)) {
          begin();
        }
      }
    }
    if (sent.empty()) return devices;
    dispatcher.SlotDone(sent.front(), 1000);
    sent.pop_front();
  }
}

// A bug: which of several devices was free first was left to what their layers'
// times differ by, and so slots waited on one device for what another had not
// begun.
TEST(SlotCostsTest, TimesThatVaryChangeNoDevice) {
  std::mt19937_64 random(37);
  std::uniform_real_distribution<double> vary(0.98, 1.02);
  CostModel model(std::vector<int64_t>(13, 1000));
  std::vector<std::vector<MicroBatchCost>> measured;
  std::vector<std::vector<MicroBatchCost>> exact;
  for (int step = 0; step < 7; ++step) {
    std::vector<double> ns;
    for (int layer = 0; layer < 12; ++layer) ns.push_back(1e6 * vary(random));
    ns.push_back(3e6);
    Step(model, ns);
    if (step == 0) continue;
    measured.push_back(MicroBatchCosts(model));
    exact.emplace_back(12, MicroBatchCost{1e6, 3e6});
    exact.back().push_back({3e6, 9e6});
  }
  const std::vector<int> devices = DevicesOf(exact);
  EXPECT_EQ(devices.size(), 6u * (16 * 2 + 8));
  EXPECT_EQ(DevicesOf(measured), devices);
}

}  // namespace
}  // namespace roundhouse
