// A job from its load to its end: what the runner decides, not what is
// computed.
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/run/runner_test_fixture.h"
#include "server/weights/output_owner.h"

namespace roundhouse {
namespace {

TEST_F(RunnerTest, AJobEvaluatesStepsSavesAndExports) {
  Run("max_steps: 5");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_, (Steps{1, 2, 3, 4, 5}));
  EXPECT_EQ(evaluations_, (Steps{0, 5}));
  EXPECT_EQ(checkpoints_, Steps{5});
  EXPECT_TRUE(fs::exists(root_ + "/output/trainer_state.json"));
}

TEST_F(RunnerTest, AResultReplacesItsOwnJobsOnly) {
  const std::string mine = root_ + "/output";
  const std::string other = mine + "-abc";
  change_options_ = [](RunnerOptions& options) { options.uid = "abc"; };
  Run("max_steps: 2");
  EXPECT_EQ(outcome_.output_path, mine);
  EXPECT_EQ(ReadOutputMark(mine).job_uid, "abc");
  WriteTestFile(mine + "/left over", "x");
  Fresh();
  Run("max_steps: 3");
  EXPECT_EQ(outcome_.output_path, mine);
  EXPECT_FALSE(fs::exists(mine + "/left over"));
  for (const char* owner : {R"({"job_uid": "abd"})", "{}", ""}) {
    WriteTestFile(mine + "/roundhouse.json", owner);
    Fresh();
    Run("max_steps: 2");
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    EXPECT_EQ(outcome_.output_path, other);
    EXPECT_EQ(ReadOutputMark(other).job_uid, "abc");
    EXPECT_EQ(ReadTestFile(mine + "/roundhouse.json"), owner);
    EXPECT_FALSE(fs::exists(TemporaryName(mine)));
  }
}

TEST_F(RunnerTest, EverySlotAndHostOperationIsTold) {
  Run("max_steps: 3\nmax_grad_norm: 1");
  EXPECT_EQ(done_steps_, steps_);
  int sent = 0, done = 0;
  for (const auto& [kind, count] : commands_) sent += count;
  for (const auto& [kind, count] : slots_) done += count;
  EXPECT_EQ(sent, done);
  EXPECT_GT(commands_[SlotKind::kEvaluate], 0);
  const int units = host_ops_[{HostOpKind::kUpdate, 1}];
  EXPECT_GT(units, 2);
  for (const int64_t step : steps_) {
    EXPECT_EQ((host_ops_[{HostOpKind::kUpdate, step}]), units);
    EXPECT_GE((host_ops_[{HostOpKind::kReduce, step}]), units);
    EXPECT_GT((host_ops_[{HostOpKind::kGather, step}]), 0);
  }
}

// A later step's updates wait for the save of an earlier one, also when the
// later one is to be saved too.
TEST_F(RunnerTest, EveryStepIsSavedWhenSavesAreSlowerThanSteps) {
  for (const char* clip : {"0", "1"}) {
    Fresh();
    Misbehave(kDevices + 1, "slow");
    Run(absl::StrCat("max_steps: 6\nsave_steps: 1\nmax_grad_norm: ", clip));
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    EXPECT_EQ(checkpoints_, (Steps{1, 2, 3, 4, 5, 6}));
    for (int64_t step = 1; step <= 6; ++step) {
      const auto state = nlohmann::json::parse(ReadTestFile(
          CheckpointPath(root_ + "/job", step) + "/trainer_state.json"));
      EXPECT_EQ(state["global_step"], step);
      EXPECT_EQ(state["log_history"].back()["step"], step);
    }
  }
}

// The validation set has more micro-batches than a training step.
TEST_F(RunnerTest, EvaluationRoundsFitTheBuffersOfTrainingRounds) {
  Run("max_steps: 1\nmicro_batches_per_round: 64");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(evaluations_, (Steps{0, 1}));
}

TEST_F(RunnerTest, ALossThatIsNotFiniteFailsTheJob) {
  for (int device = 0; device < kDevices; ++device) Misbehave(device, "nan");
  Run("max_steps: 5");
  EXPECT_EQ(outcome_.state, JobState::kFailed);
  EXPECT_EQ(outcome_.reason, JobReason::kNonFiniteLoss) << outcome_.message;
}

TEST_F(RunnerTest, DevicesThatFailAtOnceFailTheJobOnce) {
  for (const char* clip : {"0", "1"}) {
    Fresh();
    for (int device = 0; device < kDevices; ++device) Misbehave(device, "fail");
    failed_slots_ = 0;
    Run(absl::StrCat("max_steps: 5\nmax_grad_norm: ", clip));
    EXPECT_GE(failed_slots_, 1);
    EXPECT_EQ(outcome_.state, JobState::kFailed);
    EXPECT_EQ(outcome_.reason, JobReason::kDeviceMemory) << outcome_.message;
  }
}

TEST_F(RunnerTest, AHostWorkerThatFailsFailsTheJob) {
  Misbehave(kDevices, "fail");
  Run("max_steps: 5\nmax_grad_norm: 0");
  EXPECT_EQ(outcome_.state, JobState::kFailed);
  EXPECT_EQ(outcome_.reason, JobReason::kInternal) << outcome_.message;
}

TEST_F(RunnerTest, AJobWithoutDevicesFails) {
  for (int device = 0; device < kDevices; ++device) {
    Misbehave(device, "die-at-start", kMaxFruitlessDeaths);
  }
  Run("max_steps: 5");
  EXPECT_EQ(outcome_.state, JobState::kFailed);
  EXPECT_EQ(outcome_.reason, JobReason::kNoHealthyDevice) << outcome_.message;
}

TEST_F(RunnerTest, ALostDeviceLeavesItsWorkToTheOthers) {
  Misbehave(0, "die", kMaxFruitlessDeaths);
  Run("max_steps: 5");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_, (Steps{1, 2, 3, 4, 5}));
}

// Two micro-batches in two groups on two devices, and on one when that is all
// there is.
TEST_F(RunnerTest, WideSlotsRunOnWhatDevicesThereAre) {
  for (const bool lost : {false, true}) {
    Fresh();
    slots_.clear();
    steps_.clear();
    if (lost) Misbehave(0, "die", kMaxFruitlessDeaths);
    Run("max_steps: 3\ngradient_groups: 2\n"
        "plan: {forward: [[0, 1]], backward: [[2, 3], [0, 1]], width: 2}");
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    EXPECT_EQ(steps_, (Steps{1, 2, 3}));
    // Two, two and one micro-batch; five in three rounds of each evaluation.
    EXPECT_EQ(slots_[SlotKind::kFused], 5);
    EXPECT_EQ(slots_[SlotKind::kBackward], 5);
    EXPECT_EQ(slots_[SlotKind::kEvaluate], 10);
  }
}

// As long as it takes to find one.
// Which one depends on what these workers, which compute nothing, take.
TEST_F(RunnerTest, MeasuredTimesMakeAnotherPlan) {
  on_note_ = [this](const std::string& text) {
    if (!absl::StrContains(text, "new plan from measured times: ")) return;
    EXPECT_TRUE(absl::StrContains(text, "; a step simulated with it ")) << text;
    on_note_ = nullptr;
    runner_->FinishAfter(runner_->FinishStep() + 2);
  };
  Run("max_steps: 100000\nsave_steps: 0");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(on_note_, nullptr) << "the first plan stayed";
  EXPECT_GT(steps_.size(), 6u);
}

// Beside a device that takes four times as long: shares that differ, or none
// for it.
TEST_F(RunnerTest, PlansAreForDevicesAsFastAsTheyAre) {
  Misbehave(1, "sluggish");
  sizes_ = "batch_size: 8\nmicro_batch_size: 1\nmicro_batches_per_round: 8\n";
  on_note_ = [this](const std::string& text) {
    if (!absl::StrContains(text, "new plan from measured times: ")) return;
    EXPECT_FALSE(absl::StrContains(text, " x2")) << text;
    on_note_ = nullptr;
    runner_->FinishAfter(runner_->FinishStep() + 2);
  };
  Run("max_steps: 100000\nsave_steps: 0\ngradient_groups: 8");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(on_note_, nullptr) << "the first plan stayed";
}

// One search at a time, however fast steps are and often their times change.
TEST_F(RunnerTest, TimesThatDriftAreSearchedForAgain) {
  for (int device = 0; device < kDevices; ++device) Misbehave(device, "drift");
  Run("max_steps: 2000\nsave_steps: 0");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_.size(), 2000u);
}

TEST_F(RunnerTest, APlanOfTheJobsOwnStays) {
  on_note_ = [](const std::string& text) {
    EXPECT_FALSE(absl::StrContains(text, "plan from measured times")) << text;
  };
  Run("max_steps: 40\ngradient_groups: 2\n"
      "plan: {forward: [[0, 1]], backward: [[2, 3], [0, 1]]}");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
}

TEST_F(RunnerTest, APauseAtAnyStepSavesWhatItReported) {
  for (const char* clip : {"0", "1"}) {
    for (int64_t at = 1; at <= 5; ++at) {
      Fresh();
      Misbehave(kDevices + 1, "slow");
      on_step_ = [&](int64_t step) {
        if (step != at) return;
        loop_->After(absl::ZeroDuration(), [this] { runner_->Pause(); });
      };
      Run(absl::StrCat("max_steps: 6\nsave_steps: 2\nmax_grad_norm: ", clip));
      EXPECT_EQ(outcome_.state, JobState::kPaused) << outcome_.message;
      ASSERT_FALSE(steps_.empty());
      ASSERT_FALSE(checkpoints_.empty());
      EXPECT_EQ(checkpoints_.back(), steps_.back()) << "paused at " << at;
      EXPECT_GE(checkpoints_.back(), at);
    }
  }
}

TEST_F(RunnerTest, ACancelWhileExportingEndsCancelled) {
  Misbehave(kDevices + 1, "slow");
  on_finalizing_ = [this] {
    loop_->After(absl::ZeroDuration(), [this] { runner_->Cancel(); });
  };
  Run("max_steps: 2");
  EXPECT_EQ(outcome_.state, JobState::kCancelled);
}

}  // namespace
}  // namespace roundhouse
