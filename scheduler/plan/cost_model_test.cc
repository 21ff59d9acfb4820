#include "scheduler/plan/cost_model.h"

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/plan/published_planner.h"

namespace roundhouse {
namespace {

using ::testing::HasSubstr;

constexpr LayerPass kPasses[] = {LayerPass::kForward, LayerPass::kRecompute,
                                 LayerPass::kBackward};

void Observe(CostModel* model, int layer, LayerPass pass, double ms) {
  const absl::Status status =
      model->Observe(layer, pass, absl::Milliseconds(ms));
  ASSERT_TRUE(status.ok()) << status;
}

// One step in which every layer and pass takes `ms`.
void Step(CostModel* model, double ms) {
  for (int layer = 0; layer < model->layer_count(); ++layer) {
    for (const LayerPass pass : kPasses) {
      Observe(model, layer, pass, ms);
    }
  }
  model->EndStep();
}

TEST(CostModelTest, ColdValuesComeFromBytes) {
  const CostModel model({1000, 7});
  EXPECT_FALSE(model.forward_measured());
  EXPECT_FALSE(model.training_measured());
  EXPECT_EQ(model.Forward(0), absl::Nanoseconds(1000));
  EXPECT_EQ(model.Recompute(1), absl::Nanoseconds(7));
  EXPECT_EQ(model.Backward(0), absl::Nanoseconds(3000));
  EXPECT_EQ(model.Backward(1), absl::Nanoseconds(21));
}

TEST(CostModelTest, FirstStepIsDropped) {
  CostModel model({1000});
  Step(&model, 500);
  EXPECT_FALSE(model.training_measured());
  EXPECT_EQ(model.Backward(0), absl::Nanoseconds(3000));
  Step(&model, 2);
  EXPECT_TRUE(model.training_measured());
  EXPECT_EQ(model.Forward(0), absl::Milliseconds(2));
  EXPECT_EQ(model.Recompute(0), absl::Milliseconds(2));
  EXPECT_EQ(model.Backward(0), absl::Milliseconds(4));
}

TEST(CostModelTest, MicroBatchesOfAStepEnterAsTheirMean) {
  CostModel model({1000});
  Step(&model, 1);
  Observe(&model, 0, LayerPass::kForward, 1);
  Observe(&model, 0, LayerPass::kForward, 2);
  Observe(&model, 0, LayerPass::kForward, 6);
  model.EndStep();
  EXPECT_EQ(model.Forward(0), absl::Milliseconds(3));
}

TEST(CostModelTest, NothingChangesBeforeTheStepEnds) {
  CostModel model({1000});
  Step(&model, 1);
  Step(&model, 2);
  Observe(&model, 0, LayerPass::kForward, 100);
  EXPECT_EQ(model.Forward(0), absl::Milliseconds(2));
}

TEST(CostModelTest, AverageIsBiasCorrected) {
  CostModel model({1000});
  for (const double ms : {99.0, 1.0, 2.0, 4.0}) {
    Step(&model, ms);
  }
  // (0.1 * 0.81 * 1 + 0.1 * 0.9 * 2 + 0.1 * 4) / (1 - 0.9^3)
  EXPECT_EQ(model.Forward(0), absl::Nanoseconds(2439114));
  EXPECT_EQ(model.Backward(0), absl::Nanoseconds(4878229));
}

TEST(CostModelTest, AStepWithoutSamplesKeepsTheAverage) {
  CostModel model({1000, 1000});
  Step(&model, 1);
  Step(&model, 2);
  Observe(&model, 0, LayerPass::kForward, 5);
  model.EndStep();
  model.EndStep();
  EXPECT_EQ(model.Forward(1), absl::Milliseconds(2));
  // (0.1 * 0.9 * 2 + 0.1 * 5) / (1 - 0.9^2)
  EXPECT_EQ(model.Forward(0), absl::Nanoseconds(3578947));
}

TEST(CostModelTest, StaysColdUntilEveryLayerIsMeasured) {
  CostModel model({1000, 2000});
  for (int step = 0; step < 2; ++step) {
    Observe(&model, 0, LayerPass::kForward, 5);
    model.EndStep();
  }
  EXPECT_FALSE(model.forward_measured());
  EXPECT_EQ(model.Forward(0), absl::Nanoseconds(1000));
  for (int step = 0; step < 2; ++step) {
    Observe(&model, 1, LayerPass::kForward, 6);
    model.EndStep();
  }
  EXPECT_TRUE(model.forward_measured());
  EXPECT_EQ(model.Forward(0), absl::Milliseconds(5));
  EXPECT_EQ(model.Forward(1), absl::Milliseconds(6));
}

TEST(CostModelTest, RecomputeAndBackwardTurnTogether) {
  CostModel model({1000});
  for (int step = 0; step < 2; ++step) {
    Observe(&model, 0, LayerPass::kForward, 1);
    Observe(&model, 0, LayerPass::kRecompute, 5);
    model.EndStep();
  }
  EXPECT_TRUE(model.forward_measured());
  EXPECT_FALSE(model.training_measured());
  EXPECT_EQ(model.Recompute(0), absl::Nanoseconds(1000));
  EXPECT_EQ(model.Backward(0), absl::Nanoseconds(3000));
  for (int step = 0; step < 2; ++step) {
    Observe(&model, 0, LayerPass::kBackward, 7);
    model.EndStep();
  }
  EXPECT_EQ(model.Recompute(0), absl::Milliseconds(5));
  EXPECT_EQ(model.Backward(0), absl::Milliseconds(12));
}

TEST(CostModelTest, BackwardAloneDoesNotMeasureTraining) {
  CostModel model({1000});
  for (int step = 0; step < 2; ++step) {
    Observe(&model, 0, LayerPass::kBackward, 7);
    model.EndStep();
  }
  EXPECT_FALSE(model.training_measured());
  EXPECT_EQ(model.Backward(0), absl::Nanoseconds(3000));
}

TEST(CostModelTest, ZeroSamplesStillGiveAPlannableTime) {
  CostModel model({1000, 3000});
  Step(&model, 0);
  Step(&model, 0);
  EXPECT_EQ(model.Forward(0), absl::Nanoseconds(1));
}

TEST(CostModelTest, RefusesBadSamplesAndRecordsNothing) {
  CostModel model({1000, 3000});
  Step(&model, 1);
  Step(&model, 2);
  const struct {
    int layer;
    absl::Duration duration;
    std::string message;
  } kBad[] = {
      {-1, absl::Milliseconds(9), "layer -1"},
      {2, absl::Milliseconds(9), "the job has layers 0..1"},
      {0, absl::Nanoseconds(-1), "expected 0 to 1h"},
      {0, absl::Hours(2), "is 2h"},
      {0, absl::InfiniteDuration(), "expected 0 to 1h"},
  };
  for (const auto& bad : kBad) {
    const absl::Status refused =
        model.Observe(bad.layer, LayerPass::kForward, bad.duration);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(bad.message));
  }
  model.EndStep();
  EXPECT_EQ(model.Forward(0), absl::Milliseconds(2));
  EXPECT_EQ(model.Forward(1), absl::Milliseconds(2));
}

TEST(CostModelTest, ExtremesArePlannable) {
  CostModel model(
      std::vector<int64_t>(kMaxPlanLayers, CostModel::kMaxLayerParameterBytes));
  EXPECT_LE(model.Backward(0), kMaxLayerTime);
  for (int step = 0; step < 3; ++step) {
    Step(&model, absl::ToDoubleMilliseconds(CostModel::kMaxSample));
  }
  EXPECT_LE(model.Backward(0), kMaxLayerTime);
}

TEST(CostModelDeathTest, RefusesModelsItCannotServe) {
  EXPECT_DEATH(CostModel({}), "check failed");
  EXPECT_DEATH(CostModel({1000, 0}), "check failed");
  EXPECT_DEATH(CostModel({CostModel::kMaxLayerParameterBytes + 1}),
               "check failed");
  EXPECT_DEATH(CostModel(std::vector<int64_t>(kMaxPlanLayers + 1, 1)),
               "check failed");
}

TEST(CostModelDeathTest, RefusesALayerThatDoesNotExist) {
  const CostModel model({1000});
  EXPECT_DEATH(model.Forward(1), "check failed");
}

}  // namespace
}  // namespace roundhouse
