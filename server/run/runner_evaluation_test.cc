// JobRunner: evaluations between steps, the best checkpoint, and ends before
// the last step.
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/file_fault.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/run/evaluations.h"
#include "server/run/runner_test_fixture.h"

namespace roundhouse {
namespace {

// Every evaluation of these workers gives the same loss.
class RunnerEvaluationTest : public RunnerTest {
 protected:
  nlohmann::json State(const std::string& directory) const {
    return nlohmann::json::parse(
        ReadTestFile(root_ + directory + "/trainer_state.json"));
  }
  // Steps of the evaluations in a trainer_state.json.
  Steps Logged(const std::string& directory) const {
    Steps steps;
    const nlohmann::json state = State(directory);
    for (const auto& entry : state["log_history"]) {
      if (!entry.contains("eval_loss")) continue;
      steps.push_back(entry["step"]);
      EXPECT_EQ(entry["eval_perplexity"].get<double>(),
                Perplexity(entry["eval_loss"].get<double>()));
    }
    return steps;
  }
  // Another life of the job, which goes on after it was paused or died.
  void GoOn(const std::string& fields) {
    NextLife();
    on_step_ = on_evaluation_ = nullptr;
    on_finalizing_ = nullptr;
    Run(fields);
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  }
  void PauseSoon() {
    loop_->After(absl::ZeroDuration(), [this] { runner_->Pause(); });
  }
};

TEST_F(RunnerEvaluationTest, EveryEvalStepsAndAfterTheLastStep) {
  for (const char* clip : {"0", "1"}) {
    Fresh();
    evaluations_.clear();
    Run(absl::StrCat("max_steps: 7\nsave_steps: 4\neval_steps: 2\n",
                     "max_grad_norm: ", clip));
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    EXPECT_EQ(outcome_.message, "");
    EXPECT_EQ(steps_, (Steps{1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(evaluations_, (Steps{0, 2, 4, 6, 7}));
    EXPECT_EQ(checkpoints_, (Steps{4, 7}));
    EXPECT_EQ(Logged("/output"), evaluations_);
    // A checkpoint has the evaluation of its step.
    EXPECT_EQ(Logged("/job/checkpoint-4"), (Steps{0, 2, 4}));
  }
}

TEST_F(RunnerEvaluationTest, SavesOfOtherStepsGoOnBesideSteps) {
  Misbehave(kDevices + 1, "slow");
  Run("max_steps: 6\nsave_steps: 1\neval_steps: 2");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(checkpoints_, (Steps{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(evaluations_, (Steps{0, 2, 4, 6}));
  EXPECT_EQ(Logged("/job/checkpoint-3"), (Steps{0, 2}));
}

TEST_F(RunnerEvaluationTest, APauseAtAnyMomentRepeatsNoneAndSkipsNone) {
  const std::string fields = "max_steps: 6\nsave_steps: 0\neval_steps: 2";
  for (int64_t at = 1; at <= 6; ++at) {
    for (bool evaluation : {false, true}) {
      if (evaluation && at % 2 != 0) continue;
      Fresh();
      evaluations_.clear();
      auto& hook = evaluation ? on_evaluation_ : on_step_;
      hook = [&](int64_t step) {
        if (step == at) PauseSoon();
      };
      Run(fields);
      ASSERT_EQ(outcome_.state, JobState::kPaused) << outcome_.message;
      GoOn(fields);
      EXPECT_EQ(evaluations_, (Steps{0, 2, 4, 6})) << "paused at " << at;
      EXPECT_EQ(Logged("/output"), evaluations_);
    }
  }
}

TEST_F(RunnerEvaluationTest, ACrashRepeatsOnlyWhatWasLost) {
  const std::string fields = "max_steps: 4\nsave_steps: 2\neval_steps: 1";
  Run(fields);
  EXPECT_EQ(kept_evaluations_, -1);
  fs::remove_all(root_ + "/job/checkpoint-4");
  evaluations_.clear();
  GoOn(fields);
  EXPECT_EQ(kept_evaluations_, 2);
  EXPECT_EQ(evaluations_, (Steps{3, 4}));
  EXPECT_EQ(Logged("/output"), (Steps{0, 1, 2, 3, 4}));
  // Killed while it exported.
  evaluations_.clear();
  GoOn(fields);
  EXPECT_EQ(kept_evaluations_, 4);
  EXPECT_EQ(evaluations_, Steps());
  EXPECT_EQ(Logged("/output"), (Steps{0, 1, 2, 3, 4}));
}

// --- the best checkpoint ---

constexpr char kBest[] =
    "max_steps: 6\nsave_steps: 0\neval_steps: 2\n"
    "load_best_model_at_end: true\n";

TEST_F(RunnerEvaluationTest, TheBestIsSavedAndExported) {
  Run(kBest);
  EXPECT_EQ(outcome_.state, JobState::kSucceeded);
  EXPECT_TRUE(absl::StrContains(outcome_.message,
                                "the output is the model of step 2, eval_loss"))
      << outcome_.message;
  EXPECT_EQ(checkpoints_, (Steps{2, 6}));
  for (const char* directory : {"/job/checkpoint-2", "/output"}) {
    const auto state = State(directory);
    EXPECT_EQ(state["best_global_step"], 2);
    EXPECT_EQ(state["best_metric"], state["log_history"][3]["eval_loss"]);
    EXPECT_EQ(state["best_model_checkpoint"], root_ + "/job/checkpoint-2");
  }
}

TEST_F(RunnerEvaluationTest, TheBestOutlivesTheLimitOfCheckpoints) {
  Run(absl::StrCat(kBest, "save_total_limit: 2"));
  EXPECT_EQ(ListCheckpointSteps(root_ + "/job"), (Steps{2, 6}));
  Fresh();
  Run("max_steps: 6\nsave_steps: 1\neval_steps: 2\n"
      "load_best_model_at_end: true\nsave_total_limit: 1");
  EXPECT_EQ(checkpoints_, (Steps{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(ListCheckpointSteps(root_ + "/job"), (Steps{2, 6}));
}

TEST_F(RunnerEvaluationTest, TheBestIsKnownAfterAPause) {
  on_step_ = [this](int64_t step) {
    if (step == 5) PauseSoon();
  };
  Run(kBest);
  ASSERT_EQ(outcome_.state, JobState::kPaused) << outcome_.message;
  GoOn(kBest);
  EXPECT_EQ(State("/output")["best_global_step"], 2);
}

TEST_F(RunnerEvaluationTest, APauseWhileTheBestIsLoadedKeepsTheLastStep) {
  on_finalizing_ = [this] { PauseSoon(); };
  Run(kBest);
  EXPECT_EQ(outcome_.state, JobState::kPaused) << outcome_.message;
  EXPECT_EQ(ListCheckpointSteps(root_ + "/job"), (Steps{2, 6}));
  GoOn(kBest);
  EXPECT_TRUE(steps_.empty());
  EXPECT_EQ(State("/output")["best_global_step"], 2);
}

// It may be whole: nothing else is the result because a disk fails.
TEST_F(RunnerEvaluationTest, ABestThatTheDiskDoesNotGivePausesTheJob) {
  on_finalizing_ = [] {
    ASSERT_TRUE(ArmFileFaults("checkpoint.read:EIO:ever").ok());
  };
  Run(kBest);
  ASSERT_TRUE(ArmFileFaults("").ok());
  EXPECT_EQ(outcome_.state, JobState::kPaused) << outcome_.message;
  EXPECT_EQ(outcome_.reason, JobReason::kStorageError);
  on_finalizing_ = nullptr;
  GoOn(kBest);
  EXPECT_TRUE(steps_.empty());
  EXPECT_EQ(State("/output")["best_global_step"], 2);
}

// The next best of those that there still are is the result, and the job says
// so.
TEST_F(RunnerEvaluationTest, ABestThatIsCorruptIsReplacedAndNamed) {
  on_finalizing_ = [this] {
    WriteTestFile(root_ + "/job/checkpoint-2/model.safetensors", "x");
  };
  Run(kBest);
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_TRUE(absl::StrContains(outcome_.message,
                                "the best model, of step 2, is lost: "))
      << outcome_.message;
  EXPECT_TRUE(absl::StrContains(outcome_.message, "checkpoint-2"));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_TRUE(absl::StrContains(warnings_[0], "is lost")) << warnings_[0];
  EXPECT_EQ(corrupt_checkpoints_.size(), 1u);
  EXPECT_TRUE(fs::exists(root_ + "/job/checkpoint-2.corrupt"));
  const int64_t best = State("/output")["best_global_step"];
  EXPECT_TRUE(best == 4 || best == 6) << best;
  EXPECT_TRUE(absl::StrContains(outcome_.message,
                                absl::StrCat("the model of step ", best)))
      << outcome_.message;
}

TEST_F(RunnerEvaluationTest, ABestThatCouldNotBeSavedDoesNotCount) {
  Misbehave(kDevices + 1, "broken");
  on_held_ = [this] { runner_->Drain(); };
  Run(kBest);
  EXPECT_EQ(outcome_.state, JobState::kPaused);
  ASSERT_EQ(holds_.size(), 1u);  // with its output
  EXPECT_EQ(holds_[0].reason, JobReason::kStorageError);
  EXPECT_EQ(failed_checkpoints_, (Steps{2, 4, 6}));
  GoOn(kBest);
  EXPECT_EQ(State("/output")["best_global_step"], 2);
}

// --- ends before the last step ---

TEST_F(RunnerEvaluationTest, PatienceEndsTheJobAsItsLastStepWould) {
  const std::string fields =
      "max_steps: 9\nsave_steps: 0\neval_steps: 1\n"
      "early_stopping_patience: 2";
  Run(fields);
  EXPECT_EQ(outcome_.state, JobState::kSucceeded);
  EXPECT_EQ(outcome_.message,
            "stopped after step 3 of 9: no better eval_loss in 2 evaluations");
  EXPECT_EQ(steps_, (Steps{1, 2, 3}));
  EXPECT_EQ(evaluations_, (Steps{0, 1, 2, 3}));
  EXPECT_EQ(checkpoints_, Steps{3});
  EXPECT_EQ(State("/output")["global_step"], 3);
  EXPECT_TRUE(State("/output")["best_model_checkpoint"].is_null());
  GoOn(fields);  // killed while it exported
  EXPECT_TRUE(steps_.empty());
  EXPECT_TRUE(absl::StartsWith(outcome_.message, "stopped after step 3"));
}

TEST_F(RunnerEvaluationTest, PatienceIsKeptOverAPause) {
  const std::string fields =
      "max_steps: 9\nsave_steps: 0\neval_steps: 1\n"
      "early_stopping_patience: 3";
  on_evaluation_ = [this](int64_t step) {
    if (step == 2) PauseSoon();
  };
  Run(fields);
  ASSERT_EQ(outcome_.state, JobState::kPaused) << outcome_.message;
  GoOn(fields);
  EXPECT_EQ(evaluations_, (Steps{0, 1, 2, 3, 4}));
}

TEST_F(RunnerEvaluationTest, FinishEvaluatesSavesAndExportsWhatIsThere) {
  for (bool validation : {true, false}) {
    Fresh();
    evaluations_.clear();
    fs::remove_all(root_ + "/output");
    change_options_ = [&](RunnerOptions& options) {
      if (!validation) options.validation = nullptr;
    };
    on_step_ = [this](int64_t step) {
      if (step != 2) return;
      // The third is with the workers before the second is told of.
      EXPECT_EQ(runner_->FinishStep(), 3);
      runner_->FinishAfter(3);
    };
    Run("max_steps: 6\nsave_steps: 0");
    EXPECT_EQ(outcome_.state, JobState::kSucceeded);
    EXPECT_EQ(outcome_.message, "stopped after step 3 of 6 on request");
    EXPECT_EQ(steps_, (Steps{1, 2, 3}));
    EXPECT_EQ(evaluations_, validation ? (Steps{0, 3}) : Steps());
    EXPECT_EQ(checkpoints_, Steps{3});
    EXPECT_EQ(State("/output")["global_step"], 3);
  }
}

TEST_F(RunnerEvaluationTest, FinishBeforeTheFirstStepTrainsOne) {
  on_evaluation_ = [this](int64_t step) {
    if (step != 0) return;
    EXPECT_EQ(runner_->FinishStep(), 1);
    runner_->FinishAfter(1);
  };
  Run("max_steps: 6");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_, Steps{1});
  EXPECT_EQ(checkpoints_, Steps{1});
}

TEST_F(RunnerEvaluationTest, FinishAtAnyMomentKeepsEveryStepThatBegan) {
  Misbehave(kDevices + 1, "slow");
  for (int64_t at = 1; at <= 5; ++at) {
    Fresh();
    int64_t end = 0;
    on_step_ = [&](int64_t step) {
      if (step != at) return;
      loop_->After(absl::ZeroDuration(),
                   [&] { runner_->FinishAfter(end = runner_->FinishStep()); });
    };
    Run("max_steps: 6\nsave_steps: 2\neval_steps: 3");
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    EXPECT_GE(end, at);
    EXPECT_EQ(steps_.back(), end);
    EXPECT_EQ(checkpoints_.back(), end);
    EXPECT_EQ(Logged("/output").back(), end);
  }
}

}  // namespace
}  // namespace roundhouse
