// JobRunner: jobs in fp16, whose loss is scaled.  The host worker of
// tests/fakes says now and then that a norm is infinite.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/run/runner_test_fixture.h"

namespace roundhouse {
namespace {

constexpr int64_t kSteps = 12;

class Fp16RunnerTest : public RunnerTest {
 protected:
  void OnStep(const StepReport& report) override {
    reports_.push_back(report);
    RunnerTest::OnStep(report);
  }
  void OnSlotCommand(wire::RunSlot& command) override {
    if (command.mode == wire::StepMode::kTrain)
      scales_[command.step].insert(command.loss_scale);
    RunnerTest::OnSlotCommand(command);
  }

  void RunFp16(const std::string& fields) {
    reports_.clear();
    scales_.clear();
    host_ops_.clear();
    Run(absl::StrCat("fp16: true\nmax_steps: ", kSteps, "\n", fields));
  }
  CheckpointManifest Manifest(int64_t step) const {
    return *VerifyCheckpoint(AnyFiles(), CheckpointPath(root_ + "/job", step));
  }

  // Steps were scaled as GradScaler says, from `state` on; answers how many
  // were skipped.
  int CheckReports(LossScaler::State state) {
    LossScaler scaler(state);
    const std::set<int64_t> saved(checkpoints_.begin(), checkpoints_.end());
    int skipped = 0;
    for (const StepReport& report : reports_) {
      SCOPED_TRACE(report.step);
      const bool updated = report.grad_norm.has_value();
      skipped += updated ? 0 : 1;
      EXPECT_EQ(report.loss_scale, scaler.scale());
      // No slot of a step is sent before its scale is known.
      EXPECT_EQ(scales_[static_cast<uint64_t>(report.step)],
                std::set<double>{scaler.scale() /
                                 static_cast<double>(report.tokens)});
      EXPECT_EQ((host_ops_[{HostOpKind::kUpdate, report.step}] > 0), updated);
      const int64_t update = report.step - scaler.state().skipped_steps;
      EXPECT_EQ(report.learning_rate,
                5e-5 * (static_cast<double>(kSteps + 1 - update) / kSteps));
      scaler.EndStep(updated);
      if (saved.count(report.step) == 0) continue;
      EXPECT_EQ(Manifest(report.step).loss_scaler, scaler.state());
    }
    return skipped;
  }

  std::vector<StepReport> reports_;
  std::map<uint64_t, std::set<double>> scales_;  // of each step's commands
};

TEST_F(Fp16RunnerTest, StepsThatOverflowAreSkipped) {
  for (const char* clip : {"0", "1"}) {
    Fresh();
    Misbehave(kDevices, "overflow");
    RunFp16(absl::StrCat("save_steps: 0\nmax_grad_norm: ", clip));
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    EXPECT_EQ(steps_.size(), static_cast<size_t>(kSteps));
    EXPECT_EQ(done_steps_, steps_);
    EXPECT_GE(CheckReports({}), 2);
    const auto state =
        nlohmann::json::parse(ReadTestFile(root_ + "/output/"
                                                   "trainer_state.json"));
    for (size_t i = 0; i < reports_.size(); ++i) {
      const auto& line = state["log_history"][i + 1];  // behind an evaluation
      EXPECT_EQ(line["step"], reports_[i].step);
      EXPECT_EQ(line["loss_scale"], *reports_[i].loss_scale);
      EXPECT_EQ(line.contains("grad_norm"), reports_[i].grad_norm.has_value());
    }
    done_steps_.clear();
  }
}

// A checkpoint has the scale of its step, though later steps go on while it is
// written.
TEST_F(Fp16RunnerTest, EveryCheckpointHasItsStepsScale) {
  Misbehave(kDevices, "overflow");
  Misbehave(kDevices + 1, "slow");
  RunFp16("save_steps: 1");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(checkpoints_.size(), static_cast<size_t>(kSteps));
  EXPECT_GE(CheckReports({}), 2);
}

TEST_F(Fp16RunnerTest, APausedJobGoesOnWithItsScale) {
  for (int64_t at = 1; at <= 6; ++at) {
    Fresh();
    Misbehave(kDevices, "overflow");
    on_step_ = [&](int64_t step) {
      if (step != at) return;
      loop_->After(absl::ZeroDuration(), [this] { runner_->Pause(); });
    };
    RunFp16("save_steps: 0");
    EXPECT_EQ(outcome_.state, JobState::kPaused) << outcome_.message;
    CheckReports({});
    ASSERT_FALSE(checkpoints_.empty());
    const int64_t paused = checkpoints_.back();
    EXPECT_EQ(steps_.back(), paused);
    const LossScaler::State state = *Manifest(paused).loss_scaler;
    NextLife();
    on_step_ = nullptr;
    Misbehave(kDevices, "overflow");
    RunFp16("save_steps: 0");
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    ASSERT_FALSE(reports_.empty());
    EXPECT_EQ(reports_[0].step, paused + 1);
    CheckReports(state);
  }
}

TEST_F(Fp16RunnerTest, GradientsThatOverflowAtTheLowestScaleEndTheJob) {
  Misbehave(kDevices, "always-overflow");
  Run("fp16: true\nmax_steps: 100\nsave_steps: 0");
  EXPECT_EQ(outcome_.state, JobState::kFailed);
  EXPECT_EQ(outcome_.reason, JobReason::kNonFiniteLoss);
  EXPECT_TRUE(absl::StrContains(
      outcome_.message,
      "step 17: the gradient norm is not finite (NaN or infinity) at the "
      "lowest loss scale, 1; last good checkpoint: none"))
      << outcome_.message;
  EXPECT_EQ(reports_.size(), 16u);
}

TEST_F(Fp16RunnerTest, ALossThatIsNotFiniteFailsTheJob) {
  for (int device = 0; device < kDevices; ++device) Misbehave(device, "nan");
  RunFp16("save_steps: 0");
  EXPECT_EQ(outcome_.state, JobState::kFailed);
  EXPECT_EQ(outcome_.reason, JobReason::kNonFiniteLoss) << outcome_.message;
  EXPECT_TRUE(reports_.empty());
}

TEST_F(Fp16RunnerTest, InOtherDtypesTheyFailTheJob) {
  Misbehave(kDevices, "overflow");
  Run("bf16: true\nmax_steps: 12\nmax_grad_norm: 0");
  EXPECT_EQ(outcome_.state, JobState::kFailed);
  EXPECT_TRUE(absl::StrContains(outcome_.message, "gradient norm"))
      << outcome_.message;
}

}  // namespace
}  // namespace roundhouse
