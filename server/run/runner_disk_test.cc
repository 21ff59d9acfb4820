// JobRunner: what it measures, what it starts from, and the disk that must not
// stop the event loop.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/file_fault.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/run/runner_test_fixture.h"

namespace roundhouse {
namespace {

// --- what is measured ---

TEST_F(RunnerTest, EverySlotAndUnitIsReported) {
  Run("max_steps: 5");
  EXPECT_GT(slots_[SlotKind::kFused], 0);
  EXPECT_GT(slots_[SlotKind::kEvaluate], 0);
  // One round a step: a reduction and an update of 2 ms each.
  const size_t units = ModelUnits(TestModel(false)).size();
  EXPECT_EQ(unit_seconds_.size(), 5 * units);
  for (double seconds : unit_seconds_) EXPECT_DOUBLE_EQ(seconds, 0.004);
  EXPECT_TRUE(replayed_.empty());
  EXPECT_TRUE(recovered_.empty());
  EXPECT_EQ(failed_slots_, 0);
}

TEST_F(RunnerTest, ReductionsOfEveryRoundCountForTheUnit) {
  Run("max_steps: 1\nmicro_batches_per_round: 1");
  const size_t units = ModelUnits(TestModel(false)).size();
  ASSERT_EQ(unit_seconds_.size(), units);
  for (double seconds : unit_seconds_) EXPECT_DOUBLE_EQ(seconds, 0.006);
}

TEST_F(RunnerTest, ADeadWorkersSlotsAreReplayedAndItsRecoveryTimed) {
  Misbehave(0, "answer-and-die");
  Run("max_steps: 5");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  ASSERT_FALSE(replayed_.empty());
  EXPECT_EQ(std::count(replayed_.begin(), replayed_.end(), 0),
            static_cast<int>(replayed_.size()));
  EXPECT_EQ(recovered_, std::vector<int>{0});
}

TEST_F(RunnerTest, HostMemoryIsKnownByKind) {
  HostUse use;
  on_step_ = [&](int64_t) {
    use = runner_->host_use();
    EXPECT_LE(use.weight_bytes + use.optimizer_bytes + use.gradient_bytes +
                  use.activation_bytes,
              arena_->used_bytes());
  };
  Run("max_steps: 1");
  uint64_t elements = 0;
  for (const UnitSpec& unit : ModelUnits(TestModel(false))) {
    elements += static_cast<uint64_t>(unit.element_count);
  }
  EXPECT_EQ(use.weight_bytes, 4 * elements);
  EXPECT_EQ(use.optimizer_bytes, 12 * elements);
  // The embedding has a sum but no contribution: it gets rows.
  const auto embedding =
      static_cast<uint64_t>(ModelUnits(TestModel(false)).front().element_count);
  EXPECT_EQ(use.gradient_bytes, 8 * elements - 4 * embedding);
  EXPECT_GT(use.activation_bytes, 0u);
  EXPECT_EQ(runner_->host_use().weight_bytes, 0u);
}

// --- what it starts from ---

TEST_F(RunnerTest, TokensOfStepsThatAreDoneAgainCountOnce) {
  Run("max_steps: 4\nsave_steps: 2");
  EXPECT_EQ(started_at_, std::make_pair(int64_t{0}, int64_t{0}));
  fs::remove_all(root_ + "/job/checkpoint-4");  // as if it had not come so far
  NextLife();
  Run("max_steps: 4");
  EXPECT_EQ(steps_, (Steps{3, 4}));
  // Two steps of four sequences with two targets each.
  EXPECT_EQ(started_at_, std::make_pair(int64_t{2}, int64_t{16}));
}

TEST_F(RunnerTest, ACheckpointThatDoesNotVerifyIsReported) {
  Run("max_steps: 4\nsave_steps: 2");
  EXPECT_TRUE(corrupt_checkpoints_.empty());
  fs::remove(root_ + "/job/checkpoint-4/model.safetensors");
  NextLife();
  Run("max_steps: 5");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_, (Steps{3, 4, 5}));
  ASSERT_EQ(corrupt_checkpoints_.size(), 1u);
  EXPECT_TRUE(absl::StrContains(corrupt_checkpoints_[0], "checkpoint-4"))
      << corrupt_checkpoints_[0];
}

TEST_F(RunnerTest, OtherDataInTheSameJobIsAnError) {
  change_options_ = [](RunnerOptions& options) {
    options.dataset_sha256 = "a1";
  };
  Run("max_steps: 2");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  NextLife();
  tokens_sha256_ = "b2";
  Run("max_steps: 4");
  EXPECT_EQ(outcome_.state, JobState::kFailed);
  EXPECT_EQ(outcome_.reason, JobReason::kInvalidDataset);
  EXPECT_TRUE(absl::StrContains(outcome_.message, "SHA-256 b2"))
      << outcome_.message;
  EXPECT_TRUE(absl::StrContains(outcome_.message, "had a1"));
  EXPECT_EQ(ListCheckpointSteps(root_ + "/job"), Steps{2});
}

// As version 1 wrote it: one flipped bit of a manifest used to fail the job
// beside a good older checkpoint, or to train on from other weights.
TEST_F(RunnerTest, AFlipInAnOldManifestCostsOneCheckpoint) {
  const std::vector<std::pair<std::string, nlohmann::json>> flips = {
      {"dataset_sha256", "a0"}, {"step", 5}, {"format_version", 3}};
  for (const auto& [field, value] : flips) {
    Fresh();
    Run("max_steps: 4\nsave_steps: 2");
    const std::string file = root_ + "/job/checkpoint-4/checkpoint.json";
    auto manifest = nlohmann::json::parse(ReadTestFile(file));
    manifest.erase("manifest_sha256");
    manifest["format_version"] = 1;
    manifest[field] = value;
    WriteTestFile(file, manifest.dump(2) + "\n");
    corrupt_checkpoints_.clear();
    NextLife();
    Run("max_steps: 4\nsave_steps: 2");
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    EXPECT_EQ(steps_, (Steps{3, 4})) << field;
    EXPECT_EQ(corrupt_checkpoints_.size(), 1u) << field;
    EXPECT_TRUE(fs::exists(root_ + "/job/checkpoint-4.corrupt"));
  }
}

// One of version 1 that is whole is gone on from, with its history.
TEST_F(RunnerTest, ACheckpointWithoutASealIsStillGoneOnFrom) {
  Run("max_steps: 4\nsave_steps: 2");
  const std::string folder = root_ + "/job/checkpoint-4";
  auto manifest =
      nlohmann::json::parse(ReadTestFile(folder + "/checkpoint.json"));
  manifest.erase("manifest_sha256");
  manifest["format_version"] = 1;
  for (auto shard = manifest["shards"].begin();
       shard != manifest["shards"].end();) {
    const std::string name = (*shard)["file"];
    shard = absl::EndsWith(name, ".safetensors")
                ? shard + 1
                : manifest["shards"].erase(shard);
  }
  WriteTestFile(folder + "/checkpoint.json", manifest.dump(2) + "\n");
  NextLife();
  Run("max_steps: 6\nsave_steps: 2");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_, (Steps{5, 6}));
  EXPECT_TRUE(corrupt_checkpoints_.empty());
  const auto state =
      nlohmann::json::parse(ReadTestFile(root_ + "/output/trainer_state.json"));
  EXPECT_EQ(state["log_history"].front()["step"], 0);
}

// Between its verification and its load.
TEST_F(RunnerTest, AFileThatIsGoneWhenItIsLoadedIsCorruptToo) {
  Run("max_steps: 4\nsave_steps: 2");
  NextLife();
  Misbehave(kDevices + 1, "no-such-file");
  Run("max_steps: 5");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_, (Steps{3, 4, 5}));
  EXPECT_EQ(corrupt_checkpoints_.size(), 1u);
}

// A job is never lost, and never starts anew, for a disk that fails as it is
// loaded.
TEST_F(RunnerTest, ADiskThatFailsAtAStartPausesTheJob) {
  const std::pair<const char*, JobReason> faults[] = {
      {"checkpoint.read:EIO:ever", JobReason::kStorageError},
      {"job.tokenizer:EIO", JobReason::kStorageError},
      {"job.tokenizer:ENOSPC", JobReason::kStorageFull}};
  for (const auto& [fault, reason] : faults) {
    Fresh();
    Run("max_steps: 4\nsave_steps: 2");
    fs::remove_all(root_ + "/job/tokenizer");  // of an older daemon's job
    NextLife();
    ASSERT_TRUE(ArmFileFaults(fault).ok());
    Run("max_steps: 5");
    ASSERT_TRUE(ArmFileFaults("").ok());
    EXPECT_EQ(outcome_.state, JobState::kPaused) << fault;
    EXPECT_EQ(outcome_.reason, reason) << fault;
    EXPECT_TRUE(absl::StrContains(
        outcome_.message, reason == JobReason::kStorageFull
                              ? "it goes on by itself when there is room"
                              : "it is tried again"))
        << outcome_.message;
    NextLife();
    Run("max_steps: 5");
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    EXPECT_EQ(steps_, Steps{5}) << fault;
  }
}

TEST_F(RunnerTest, OneThatCannotBeMovedAsidePausesTheJob) {
  Run("max_steps: 4\nsave_steps: 2");
  NextLife();
  Misbehave(kDevices + 1, "no-such-file");
  ASSERT_TRUE(ArmFileFaults("checkpoint.quarantine:ENOSPC").ok());
  Run("max_steps: 5");
  ASSERT_TRUE(ArmFileFaults("").ok());
  EXPECT_EQ(outcome_.state, JobState::kPaused) << outcome_.message;
  EXPECT_EQ(outcome_.reason, JobReason::kStorageFull);
  NextLife();
  Run("max_steps: 5");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(steps_, Steps{5});
}

TEST_F(RunnerTest, NoOlderOneGoesBesideANewestThatIsNotGood) {
  on_step_ = [this](int64_t step) {
    if (step != 3) return;
    ASSERT_TRUE(ArmFileFaults("checkpoint.text:flip:ever").ok());
  };
  Run("max_steps: 3\nsave_steps: 1\nsave_total_limit: 2");
  ASSERT_TRUE(ArmFileFaults("").ok());
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  const Steps kept = ListCheckpointSteps(root_ + "/job");
  EXPECT_EQ(kept.size(), 3u);
  EXPECT_FALSE(corrupt_checkpoints_.empty());
}

TEST_F(RunnerTest, OtherDataInANewJobIsAWarning) {
  Run("max_steps: 2");
  EXPECT_TRUE(warnings_.empty());
  fs::rename(root_ + "/job", root_ + "/first");
  for (const char* sha256 : {"a1", "b2"}) {
    Fresh();
    tokens_sha256_ = sha256;
    Run(absl::StrCat("max_steps: 4\nresume_from_checkpoint: ", root_,
                     "/first/checkpoint-2"));
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    EXPECT_EQ(steps_, (Steps{3, 4}));
    EXPECT_EQ(warnings_.empty(), tokens_sha256_ == "a1");
  }
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_TRUE(absl::StrContains(warnings_[0], "SHA-256 a1"));
  EXPECT_TRUE(absl::StrContains(warnings_[0], "dataset has b2"));
}

// --- the disk and the loop ---

TEST_F(RunnerTest, OnlyTheNewestCheckpointsAreKept) {
  Run("max_steps: 6\nsave_steps: 1\nsave_total_limit: 2");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_EQ(ListCheckpointSteps(root_ + "/job"), (Steps{5, 6}));
}

// A tokenizer file that is a pipe: who copies it waits until someone writes.
class SlowDiskTest : public RunnerTest {
 protected:
  SlowDiskTest() : pipe_(root_ + "/job/tokenizer/pipe") {
    signal(SIGPIPE, SIG_IGN);  // the reader may go before the second byte
    fs::create_directories(root_ + "/job/tokenizer");
    EXPECT_EQ(mkfifo(pipe_.c_str(), 0600), 0);
    loop_->After(absl::ZeroDuration(), [this] { Feed(); });
    rescue_ = std::thread([this] { Rescue(); });
  }
  ~SlowDiskTest() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    rescue_.join();
    EXPECT_FALSE(rescued_) << "the event loop waited for the disk";
  }

  bool WriteIfRead() {
    const int fd = open(pipe_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    if (on_read_) std::exchange(on_read_, nullptr)();
    const bool written = write(fd, "{}", 2) == 2;
    close(fd);
    return written;
  }
  // On the loop, for as long as it turns.
  void Feed() {
    if (WriteIfRead()) ++fed_;
    if (!finished_) {
      loop_->After(absl::Milliseconds(1), [this] { Feed(); });
    }
  }
  // A loop that waits is let go, so that the test fails and does not hang.
  void Rescue() {
    std::unique_lock<std::mutex> lock(mutex_);
    auto limit = std::chrono::seconds(60);
    while (!changed_.wait_for(lock, limit, [this] { return over_; })) {
      rescued_ |= WriteIfRead();
      limit = std::chrono::seconds(1);
    }
  }

  const std::string pipe_;
  int fed_ = 0;
  std::function<void()> on_read_;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;  // guarded by mutex_
  bool rescued_ = false;
  std::thread rescue_;
};

TEST_F(SlowDiskTest, TheLoopTurnsWhileADirectoryIsFinished) {
  Run("max_steps: 1");
  EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
  EXPECT_GE(fed_, 2);  // the checkpoint and the output
}

TEST_F(SlowDiskTest, ACancelWaitsForTheDirectoryInHand) {
  on_read_ = [this] { runner_->Cancel(); };
  Run("max_steps: 1");
  EXPECT_EQ(outcome_.state, JobState::kCancelled);
  EXPECT_EQ(checkpoints_, Steps{1});
}

}  // namespace
}  // namespace roundhouse
