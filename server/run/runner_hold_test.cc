// JobRunner: jobs that wait with their memory, for what they save can't be
// written, or as they are told.
#include <signal.h>

#include <filesystem>
#include <functional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/run/runner_test_fixture.h"

namespace roundhouse {
namespace {

class RunnerHoldTest : public RunnerTest {
 protected:
  // The first files worker of the pool finds the disk full, or broken; the next
  // one does not.
  void BreakDisk(const std::string& way) {
    Misbehave(kDevices + 1, way);
    on_held_ = [this] {
      EXPECT_TRUE(runner_->held());
      sent_when_held_ = Sent();
      if (then_ != nullptr) loop_->After(absl::ZeroDuration(), then_);
    };
  }
  void MendDisk() {
    ASSERT_EQ(kill(pool_->info(pool_->FilesWorker()).pid, SIGKILL), 0);
    mending_ = true;
  }
  void OnWorkerUp(WorkerId worker) override {
    RunnerTest::OnWorkerUp(worker);
    if (worker != pool_->FilesWorker() || !mending_) return;
    mending_ = false;
    // A worker died and came back meanwhile.
    EXPECT_EQ(Sent(), sent_when_held_) << "it was held";
    EXPECT_TRUE(runner_->held());
    runner_->TryAgain();
    EXPECT_FALSE(runner_->held());
  }
  int Sent() const {
    int sent = 0;
    for (const auto& [pass, count] : sent_) sent += count;
    return sent;
  }
  std::function<void()> Mends() {
    return [this] { MendDisk(); };
  }
  std::function<void()> Cancels() {
    return [this] { runner_->Cancel(); };
  }
  std::function<void()> Drains() {
    return [this] { runner_->Drain(); };
  }
  void PauseAfter(int64_t step) {
    on_step_ = [this, step](int64_t done) {
      if (done != step) return;
      loop_->After(absl::ZeroDuration(), [this] { runner_->Pause(); });
    };
  }

  std::function<void()> then_;  // once it is held

 private:
  bool mending_ = false;
  int sent_when_held_ = 0;
};

TEST_F(RunnerHoldTest, AJobGoesOnWithTheCheckpointThatDidNotFit) {
  for (const char* fields : {"max_grad_norm: 0", "max_grad_norm: 1",
                             "max_grad_norm: 0\noptimizer_mode: async",
                             "max_grad_norm: 1\nmicro_batches_per_round: 1"}) {
    SCOPED_TRACE(fields);
    Fresh();
    then_ = Mends();
    BreakDisk("full");
    Run(absl::StrCat("max_steps: 7\nsave_steps: 2\nsave_total_limit: 9\n",
                     fields));
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    ASSERT_EQ(holds_.size(), 1u);
    EXPECT_EQ(holds_[0].state, JobState::kRunning);
    EXPECT_EQ(holds_[0].reason, JobReason::kStorageFull);
    EXPECT_EQ(holds_[0].saved_step, 0);
    EXPECT_GT(holds_[0].need_bytes, 1000u);
    // No step is done twice, none is left out, and nothing failed.
    EXPECT_EQ(steps_, (Steps{1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(checkpoints_, (Steps{2, 4, 6, 7}));
    EXPECT_TRUE(failed_checkpoints_.empty());
  }
}

TEST_F(RunnerHoldTest, AJobThatWouldEndWaitsWithItsLastCheckpoint) {
  then_ = Mends();
  BreakDisk("full");
  Run("max_steps: 3");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  ASSERT_EQ(holds_.size(), 1u);
  EXPECT_EQ(checkpoints_, Steps{3});
}

TEST_F(RunnerHoldTest, WhatCouldNotBeExportedIsKept) {
  WriteTestFile(root_ + "/file", "in the way");
  output_ = "/file/output";
  on_held_ = [this] {
    if (holds_.size() < 3) {  // as often as it is asked to
      loop_->After(absl::ZeroDuration(), [this] { runner_->TryAgain(); });
      return;
    }
    fs::remove(root_ + "/file");
    fs::create_directories(root_ + "/file");
    loop_->After(absl::ZeroDuration(), [this] { runner_->TryAgain(); });
  };
  Run("max_steps: 2");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  ASSERT_EQ(holds_.size(), 3u);
  EXPECT_EQ(holds_[2].state, JobState::kFinalizing);
  EXPECT_EQ(holds_[2].reason, JobReason::kStorageError);
  EXPECT_EQ(holds_[2].saved_step, 2);
  EXPECT_EQ(steps_, (Steps{1, 2}));
  EXPECT_EQ(checkpoints_, Steps{2});
  EXPECT_TRUE(fs::exists(root_ + "/file/output/config.json"));
}

TEST_F(RunnerHoldTest, ACheckpointThatFailsForAnotherReasonHoldsNobody) {
  Misbehave(kDevices + 1, "broken");
  on_held_ = [this] { runner_->Cancel(); };
  Run("max_steps: 4\nsave_steps: 2");
  EXPECT_EQ(failed_checkpoints_, (Steps{2, 4}));
  ASSERT_EQ(holds_.size(), 1u);
  EXPECT_EQ(holds_[0].state, JobState::kFinalizing);
  EXPECT_EQ(outcome_.state, JobState::kCancelled);
}

TEST_F(RunnerHoldTest, APauseEndsWhenItsSaveFits) {
  then_ = Mends();
  BreakDisk("full");
  PauseAfter(2);
  Run("max_steps: 50");
  EXPECT_EQ(outcome_.state, JobState::kPaused);
  EXPECT_EQ(outcome_.reason, JobReason::kNone) << outcome_.message;
  ASSERT_EQ(holds_.size(), 1u);
  EXPECT_EQ(holds_[0].state, JobState::kPausing);
  EXPECT_EQ(checkpoints_, Steps{steps_.back()});
  EXPECT_TRUE(failed_checkpoints_.empty());
}

// --- rest ---

class RunnerRestTest : public RunnerHoldTest {
 protected:
  // After the step it rests while its devices' workers die and are back, and
  // then does this.
  void RestAfter(int64_t step, std::function<void()> then) {
    on_step_ = [this, step, then = std::move(then)](int64_t done) {
      if (done != step) return;
      loop_->After(absl::ZeroDuration(), [this, then] {
        if (!runner_->MayRest()) return;  // it has ended
        runner_->Rest();
        EXPECT_TRUE(runner_->resting());
        EXPECT_FALSE(runner_->MayRest());
        sent_at_rest_ = Sent();
        for (int i = 0; i < kDevices; ++i) {
          kill(pool_->info(static_cast<WorkerId>(i)).pid, SIGKILL);
        }
        loop_->After(absl::Milliseconds(100), [this, then] {
          EXPECT_EQ(Sent(), sent_at_rest_) << "it rests";
          then();
        });
      });
    };
  }

  int sent_at_rest_ = 0;
};

TEST_F(RunnerRestTest, AJobGoesOnWhereItWasAndDoesNoStepTwice) {
  for (const char* fields : {"max_grad_norm: 0", "max_grad_norm: 1",
                             "max_grad_norm: 0\noptimizer_mode: async",
                             "max_grad_norm: 1\nmicro_batches_per_round: 1"}) {
    for (int64_t at = 1; at <= 6; ++at) {
      SCOPED_TRACE(absl::StrCat(fields, " at ", at));
      Fresh();
      RestAfter(at, [this] { runner_->EndRest(); });
      Run(absl::StrCat("max_steps: 6\nsave_steps: 3\nsave_total_limit: 9\n",
                       fields));
      EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
      EXPECT_EQ(steps_, (Steps{1, 2, 3, 4, 5, 6}));
      EXPECT_EQ(checkpoints_, (Steps{3, 6}));
    }
  }
}

// Its memory is needed, or the daemon ends.
TEST_F(RunnerRestTest, AJobThatRestsIsSavedAsAPauseSaves) {
  for (const char* fields : {"max_grad_norm: 0", "max_grad_norm: 1",
                             "max_grad_norm: 0\noptimizer_mode: async"}) {
    for (const bool drains : {false, true}) {
      for (int64_t at = 1; at <= 3; ++at) {
        SCOPED_TRACE(absl::StrCat(fields, " at ", at));
        Fresh();
        RestAfter(at, [this, drains] {
          drains ? runner_->Drain() : runner_->Pause();
        });
        Run(absl::StrCat("max_steps: 50\nsave_steps: 0\n", fields));
        EXPECT_EQ(outcome_.state, JobState::kPaused) << outcome_.message;
        EXPECT_EQ(outcome_.reason, JobReason::kNone) << outcome_.message;
        ASSERT_FALSE(steps_.empty());
        EXPECT_EQ(checkpoints_, Steps{steps_.back()});
      }
    }
  }
}

TEST_F(RunnerRestTest, ACancelEndsARest) {
  RestAfter(2, [this] { runner_->Cancel(); });
  Run("max_steps: 50");
  EXPECT_EQ(outcome_.state, JobState::kCancelled);
  EXPECT_TRUE(checkpoints_.empty());
}

TEST_F(RunnerRestTest, ACheckpointThatDoesNotFitWaitsForTheEndOfTheRest) {
  Misbehave(kDevices + 1, "full");
  on_step_ = [this](int64_t step) {
    if (step != 2) return;
    loop_->After(absl::ZeroDuration(), [this] { runner_->Rest(); });
  };
  on_held_ = [this] {
    ASSERT_TRUE(runner_->resting());
    kill(pool_->info(pool_->FilesWorker()).pid, SIGKILL);
    loop_->After(absl::Milliseconds(200), [this] {
      runner_->EndRest();
      EXPECT_TRUE(runner_->held());
      runner_->TryAgain();
    });
  };
  Run("max_steps: 5\nsave_steps: 2\nsave_total_limit: 9");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_, (Steps{1, 2, 3, 4, 5}));
  EXPECT_EQ(checkpoints_, (Steps{2, 4, 5}));
}

TEST_F(RunnerHoldTest, ACancelEndsWhatIsHeld) {
  for (const char* fields :
       {"max_steps: 50\nsave_steps: 2", "max_steps: 2",
        "max_steps: 50\nsave_steps: 2\noptimizer_mode: async"}) {
    Fresh();
    then_ = Cancels();
    BreakDisk("full");
    Run(fields);
    EXPECT_EQ(outcome_.state, JobState::kCancelled) << outcome_.message;
    EXPECT_EQ(holds_.size(), 1u);
    EXPECT_TRUE(checkpoints_.empty());
    EXPECT_FALSE(fs::exists(root_ + "/job/tmp-checkpoint-2"));
  }
  Fresh();
  BreakDisk("full");
  PauseAfter(2);
  Run("max_steps: 50");
  EXPECT_EQ(outcome_.state, JobState::kCancelled) << outcome_.message;
}

// A daemon that stops writes nothing on a full disk; the next one goes on from
// the last checkpoint.
TEST_F(RunnerHoldTest, ADrainGivesUpWhatIsHeld) {
  for (const char* fields : {"max_steps: 9\nsave_steps: 2", "max_steps: 2"}) {
    Fresh();
    then_ = Drains();
    BreakDisk("full");
    Run(fields);
    EXPECT_EQ(outcome_.state, JobState::kPaused);
    EXPECT_EQ(outcome_.reason, JobReason::kStorageFull);
    EXPECT_TRUE(checkpoints_.empty());
    EXPECT_TRUE(failed_checkpoints_.empty());
    NextLife();
    Run(fields);
    EXPECT_EQ(started_at_.first, 0);
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  }
}

TEST_F(RunnerHoldTest, ADrainThatCannotSaveHoldsNobody) {
  for (const char* way : {"full", "broken"}) {
    Fresh();
    Misbehave(kDevices + 1, way);
    on_step_ = [this](int64_t step) {
      if (step != 2) return;
      loop_->After(absl::ZeroDuration(), [this] { runner_->Drain(); });
    };
    Run("max_steps: 50");
    EXPECT_EQ(outcome_.state, JobState::kPaused);
    EXPECT_TRUE(
        absl::StrContains(outcome_.message, "resumed, it goes on after step 0"))
        << outcome_.message;
    EXPECT_TRUE(holds_.empty());
    EXPECT_EQ(failed_checkpoints_.size(), 1u);  // not tried again
    failed_checkpoints_.clear();
  }
}

TEST_F(RunnerHoldTest, ABestModelThatDidNotFitCountsOnceItDoes) {
  then_ = Mends();
  BreakDisk("full");
  Run("max_steps: 4\nsave_steps: 0\neval_steps: 2\n"
      "load_best_model_at_end: true\nsave_total_limit: 1");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  ASSERT_EQ(holds_.size(), 1u);
  EXPECT_TRUE(absl::StrContains(outcome_.message, "the model of step 2"))
      << outcome_.message;
}

TEST_F(RunnerHoldTest, ASaveThatFailsAtOnceDoesNotStopTheJobTwice) {
  // The last checkpoint cannot be made, and neither can the output.
  WriteTestFile(root_ + "/file", "in the way");
  output_ = "/file/output";
  on_step_ = [this](int64_t) {
    fs::remove_all(root_ + "/job");
    WriteTestFile(root_ + "/job", "in the way");
  };
  on_held_ = [this] { runner_->Cancel(); };
  Run("max_steps: 2");
  EXPECT_TRUE(checkpoints_.empty());
  EXPECT_EQ(failed_checkpoints_, Steps{2});
  EXPECT_EQ(outcome_.state, JobState::kCancelled) << outcome_.message;
}

using RunnerHoldDeathTest = RunnerHoldTest;

TEST_F(RunnerHoldDeathTest, WhatIsNotHeldDoesNotTryAgain) {
  on_step_ = [this](int64_t) {
    EXPECT_DEATH(runner_->TryAgain(), "check failed");
  };
  Run("max_steps: 1");
}

}  // namespace
}  // namespace roundhouse
