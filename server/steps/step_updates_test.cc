#include "server/steps/step_updates.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/reduction.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

StepUpdates Make(const std::string& fields, int64_t total_steps = 10) {
  const auto spec = ParseJobSpec(
      absl::StrCat("model_name_or_path: m\ndataset: d\n", fields), "job.yaml");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return StepUpdates(*spec, total_steps);
}

// A step whose gradients, not scaled, have norm 3.
std::optional<double> GoodStep(StepUpdates& updates, UpdateNumbers* update) {
  const double scaled = 3 * updates.loss_scale();
  return updates.EndStep(scaled * scaled, updates.loss_scale(), update);
}

TEST(StepUpdatesTest, WithoutFp16ThereIsNoScale) {
  StepUpdates updates = Make("bf16: true\nmax_grad_norm: 0\nadam_beta1: 0.5");
  EXPECT_FALSE(updates.scales_loss());
  EXPECT_FALSE(updates.wait_for_norm());
  EXPECT_EQ(updates.loss_scale(), 1);
  UpdateNumbers update = updates.Begin(4);
  EXPECT_EQ(update.number, 4);
  EXPECT_EQ(update.beta1, 0.5);
  EXPECT_EQ(update.learning_rate, 5e-5 * 0.7);
  EXPECT_EQ(GoodStep(updates, &update), 3);
  EXPECT_EQ(update.gradient_scale, 1.0f);
  EXPECT_FALSE(updates.EndStep(kInfinity, 1, &update).has_value());
  EXPECT_FALSE(updates.State().has_value());
  EXPECT_FALSE(updates.exhausted());
  EXPECT_EQ(updates.Begin(6).number, 6);
}

TEST(StepUpdatesTest, UpdatesTakeTheScaleOutAndClip) {
  for (const double max_norm : {0.0, 1.0, 4.0}) {
    StepUpdates updates =
        Make(absl::StrCat("fp16: true\nmax_grad_norm: ", max_norm));
    EXPECT_TRUE(updates.scales_loss());
    EXPECT_TRUE(updates.wait_for_norm());
    EXPECT_EQ(updates.loss_scale(), 65536);
    UpdateNumbers update = updates.Begin(1);
    EXPECT_EQ(GoodStep(updates, &update), 3);
    EXPECT_EQ(update.gradient_scale * 65536.0f, ClipFactor(3, max_norm));
  }
}

TEST(StepUpdatesTest, SkippedStepsHoldAdamAndTheScheduleBack) {
  StepUpdates updates = Make("fp16: true\nwarmup_steps: 4");
  UpdateNumbers update = updates.Begin(1);
  ASSERT_TRUE(GoodStep(updates, &update).has_value());
  const UpdateNumbers second = updates.Begin(2);
  EXPECT_EQ(second.number, 2);
  EXPECT_EQ(second.learning_rate, 5e-5 / 4);
  for (const double squares : {kInfinity, std::nan("")}) {
    EXPECT_FALSE(updates.EndStep(squares, updates.loss_scale(), &update));
  }
  EXPECT_EQ(updates.loss_scale(), 16384);
  const UpdateNumbers fourth = updates.Begin(4);
  EXPECT_EQ(fourth.number, 2);
  EXPECT_EQ(fourth.learning_rate, second.learning_rate);
  EXPECT_EQ(*updates.State(), (LossScaler::State{16384, 0, 2}));
}

TEST(StepUpdatesTest, GoesOnFromACheckpoint) {
  StepUpdates updates = Make("fp16: true");
  updates.GoOnFrom(LossScaler::State{4, 1999, 3});
  UpdateNumbers update = updates.Begin(8);
  EXPECT_EQ(update.number, 5);
  ASSERT_TRUE(GoodStep(updates, &update).has_value());
  EXPECT_EQ(*updates.State(), (LossScaler::State{8, 0, 3}));
}

TEST(StepUpdatesTest, IsExhaustedWhenTheLowestScaleOverflows) {
  StepUpdates updates = Make("fp16: true");
  UpdateNumbers update;
  int skipped = 0;
  while (!updates.exhausted() && skipped < 100) {
    EXPECT_GE(updates.loss_scale(), 1);
    updates.EndStep(kInfinity, updates.loss_scale(), &update);
    ++skipped;
  }
  EXPECT_EQ(skipped, 17);
}

}  // namespace
}  // namespace roundhouse
