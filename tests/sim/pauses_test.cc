// Jobs that are paused with their memory, and those that give theirs, or their
// place, to others.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/sharing_test_fixture.h"

namespace roundhouse::sim {
namespace {

class PausesTest : public SharingTest {
 protected:
  // How often the job was saved whole for others: it went on from there.
  int CheckSaves(int64_t number) {
    int saves = 0;
    int64_t saved = 0;
    const auto page = server_->store().ListEvents(NameOfJob(number), 0, 1000);
    EXPECT_TRUE(page.ok()) << page.status();
    if (!page.ok()) return 0;
    for (const JobEvent& event : page->events) {
      if (event.state == JobState::kRunning) {
        EXPECT_GE(event.step, saved) << Events(number);
      }
      if (event.state != JobState::kPaused || !event.message.empty()) continue;
      EXPECT_EQ(event.reason, JobReason::kGivesWay);
      saved = event.step;
      ++saves;
    }
    return saves;
  }
  // A server that has memory for so many jobs of Submit.
  void StartServerFor(double jobs, int max_running_jobs = 16) {
    StartServer(2, 1);
    const uint64_t none = server_->arena().used_bytes();
    Submit("ann");
    Pass(absl::Seconds(10));
    const uint64_t of_one = server_->arena().used_bytes() - none;
    ForgetServer();
    host_bytes_ =
        none + static_cast<uint64_t>(static_cast<double>(of_one) * jobs);
    StartServer(2, 1, max_running_jobs);
  }
};

TEST_F(PausesTest, APausedJobKeepsItsMemoryAndGoesOnInItsStep) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    std::mt19937_64 random(seed);
    StartServer(static_cast<int>(1 + random() % 4), seed);
    Submit("ann");
    Submit("bob");
    Pass(absl::Seconds(10) + absl::Milliseconds(random() % 3000));
    for (int i = 0; i < 5; ++i) {
      const uint64_t used = server_->arena().used_bytes();
      const auto paused = Ask(&Engine::Pause, 1);
      ASSERT_TRUE(paused.ok()) << paused.status();
      EXPECT_EQ(paused->state, JobState::kPaused);
      EXPECT_TRUE(paused->progress.memory_kept);
      Pass(absl::Seconds(2));  // a slot that runs ends
      begun_.clear();
      Pass(absl::Seconds(random() % 20));
      EXPECT_FALSE(begun_.contains(1)) << "seed " << seed;
      // Other jobs' tables come and go.
      EXPECT_GT(server_->arena().used_bytes() + (1 << 20), used);
      const int64_t step = Job(1).progress.step;
      const auto resumed = Ask(&Engine::Resume, 1);
      ASSERT_TRUE(resumed.ok()) << resumed.status();
      EXPECT_EQ(resumed->state, JobState::kRunning);
      begun_.clear();
      Pass(absl::Seconds(5));
      EXPECT_TRUE(begun_.contains(1)) << "seed " << seed;
      EXPECT_GE(Job(1).progress.step, step);
      EXPECT_EQ(Job(1).attempts, 1);
      EXPECT_EQ(Job(1).last_checkpoint_path, "");
    }
    // One that waits for a producer which does not run is given up.
    EXPECT_LE(std::exchange(computed_twice_, 0), 1) << "seed " << seed;
    ForgetServer();
  }
}

// Two jobs fit, and a third one comes.
TEST_F(PausesTest, WhoIsPausedLongestGivesItsMemoryToWhoNeedsIt) {
  StartServerFor(2.5);
  Submit("ann");
  Submit("ann");
  Pass(absl::Seconds(20));
  ASSERT_EQ(Job(2).state, JobState::kRunning);
  ASSERT_TRUE(Ask(&Engine::Pause, 2).ok());
  Pass(absl::Seconds(5));
  ASSERT_TRUE(Ask(&Engine::Pause, 1).ok());
  const int64_t steps = Job(2).progress.step;
  ASSERT_GT(steps, 0);
  Submit("bob");
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(3).state, JobState::kRunning);
  EXPECT_EQ(Job(2).state, JobState::kPaused);
  EXPECT_FALSE(Job(2).progress.memory_kept);
  EXPECT_NE(Job(2).last_checkpoint_path, "");
  // It waits for memory as every job does, and for that of the other one.
  ASSERT_TRUE(Ask(&Engine::Resume, 2).ok());
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(2).state, JobState::kRunning);
  EXPECT_GE(Job(2).progress.step, steps);
  EXPECT_EQ(Job(2).attempts, 2);
  EXPECT_FALSE(Job(1).progress.memory_kept);
  ASSERT_TRUE(Ask(&Engine::Resume, 1).ok());
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(1).state, JobState::kQueued) << "those who run are left alone";
  for (const int64_t job : {2, 3}) {
    ASSERT_TRUE(Ask(&Engine::Pause, job).ok());
  }
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(1).state, JobState::kRunning);
  EXPECT_FALSE(Job(2).progress.memory_kept);
}

TEST_F(PausesTest, AKilledDaemonLeavesAPausedJobPaused) {
  StartServer(2, 1);
  Submit("ann", "save_steps: 2\n");
  Pass(absl::Seconds(40));
  ASSERT_TRUE(Ask(&Engine::Pause, 1).ok());
  EXPECT_NE(Job(1).last_checkpoint_path, "");
  Pass(absl::Seconds(5));
  server_->Crash();
  server_->Start();
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(1).state, JobState::kPaused);
  EXPECT_FALSE(Job(1).progress.memory_kept);
  ASSERT_TRUE(Ask(&Engine::Resume, 1).ok());
  slots_.clear();  // another life has other numbers
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(1).state, JobState::kRunning);
}

constexpr char kUrgent[] = "priority: urgent\n";

TEST_F(PausesTest, AnUrgentJobTakesTheMemoryOfTheOneThatWouldStartLast) {
  StartServerFor(2.8);
  Submit("ann");
  Pass(absl::Seconds(10));  // so that their memory is not in pieces
  Submit("ann");
  Pass(absl::Seconds(20));
  ASSERT_EQ(Job(2).state, JobState::kRunning);
  Submit("bob");
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(3).state, JobState::kQueued) << "normal jobs wait";
  Submit("eve", kUrgent);
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(4).state, JobState::kRunning);
  EXPECT_EQ(Job(1).state, JobState::kRunning) << Events(1);
  EXPECT_EQ(Job(2).state, JobState::kQueued) << Events(2);
  EXPECT_THAT(Events(2), testing::ContainsRegex(
                             "step that it is in (ends first|is made again)"));
  const int64_t step = Job(2).progress.step;
  EXPECT_GT(step, 0);
  for (const int64_t job : {3, 4}) Cancel(job).IgnoreError();
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(2).state, JobState::kRunning)
      << Events(2) << Events(3) << Events(4);
  EXPECT_GT(Job(2).progress.step, step);
}

TEST_F(PausesTest, AnUrgentJobTakesAPlaceAtOnce) {
  StartServer(2, 1, 1);
  Submit("ann");
  Pass(absl::Seconds(20));
  Submit("bob");
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(2).state, JobState::kQueued);
  Submit("eve", kUrgent);
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(3).state, JobState::kRunning);
  EXPECT_EQ(Job(1).state, JobState::kQueued);
  Submit("eve", kUrgent);
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(4).state, JobState::kQueued) << "no job of its class gives way";
  for (const int64_t job : {2, 3, 4}) Cancel(job).IgnoreError();
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(1).state, JobState::kRunning);
}

constexpr char kBackfill[] = "priority: backfill\n";

TEST_F(PausesTest, ANormalJobTakesTheMemoryOfABackfillJob) {
  StartServerFor(2.8);
  Submit("ann");
  Pass(absl::Seconds(10));  // so that their memory is not in pieces
  Submit("ann", kBackfill);
  Pass(absl::Seconds(20));
  ASSERT_EQ(Job(2).state, JobState::kRunning);
  Submit("bob", kBackfill);
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(3).state, JobState::kQueued) << "it makes nobody give way";
  Submit("cem");
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(4).state, JobState::kRunning);
  EXPECT_EQ(Job(1).state, JobState::kRunning) << Events(1);
  EXPECT_EQ(Job(2).state, JobState::kQueued) << Events(2);
  EXPECT_THAT(Events(2), testing::HasSubstr("a job of class normal needs its "
                                            "memory"));
  const int64_t step = Job(2).progress.step;
  EXPECT_GT(step, 0);
  Cancel(4).IgnoreError();
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(2).state, JobState::kRunning) << "it ran before bob's";
  EXPECT_GT(Job(2).progress.step, step);
  EXPECT_EQ(Job(3).state, JobState::kQueued);
}

TEST_F(PausesTest, AnUrgentJobTakesThePlaceOfTheLowestClass) {
  StartServer(2, 1, 2);
  Submit("ann", kBackfill);
  Submit("bob");
  Pass(absl::Seconds(20));
  Submit("eve", kUrgent);
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(3).state, JobState::kRunning);
  EXPECT_EQ(Job(2).state, JobState::kRunning);
  EXPECT_EQ(Job(1).state, JobState::kQueued);
  EXPECT_EQ(Job(1).reason, JobReason::kNone);
  Cancel(2).IgnoreError();
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(1).state, JobState::kRunning);
  // One that becomes a backfill job gives way to those that wait.
  Submit("bob");
  Submit("bob");
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(4).state, JobState::kRunning);
  EXPECT_EQ(Job(5).state, JobState::kQueued);
  const PriorityChange change = {.priority = Priority::kBackfill};
  const auto changed = server_->Call<absl::StatusOr<JobRecord>>(
      [&] { return server_->engine().SetPriority(NameOfJob(3), change); });
  ASSERT_TRUE(changed.ok()) << changed.status();
  Pass(absl::Seconds(20));
  EXPECT_EQ(Job(5).state, JobState::kRunning);
  EXPECT_EQ(Job(3).state, JobState::kQueued);
}

// A pause of a job that gives way, and a resume of one whose memory is taken,
// outlive the daemon, and so does what nobody asked for.
TEST_F(PausesTest, WhatFollowsASpillOutlivesTheDaemon) {
  for (const bool pauses : {false, true}) {
    SCOPED_TRACE(pauses);
    StartServer(2, 1, 1);
    Submit("ann");
    Pass(absl::Seconds(20));
    Submit("eve", kUrgent);
    for (int i = 0; i < 10000 && Job(1).state == JobState::kRunning; ++i) {
      Pass(absl::Milliseconds(1));
    }
    ASSERT_EQ(Job(1).state, JobState::kPausing);
    ASSERT_EQ(Job(1).reason, JobReason::kGivesWay);
    if (pauses) {
      const auto paused = Ask(&Engine::Pause, 1);
      ASSERT_TRUE(paused.ok()) << paused.status();
      EXPECT_EQ(paused->reason, JobReason::kNone);
    }
    server_->Crash();
    server_->Start();
    slots_.clear();  // another life has other numbers
    Pass(absl::Seconds(20));
    EXPECT_EQ(Job(1).state, pauses ? JobState::kPaused : JobState::kQueued);
    Cancel(2).IgnoreError();
    Pass(absl::Seconds(20));
    EXPECT_EQ(Job(1).state, pauses ? JobState::kPaused : JobState::kRunning);
    ForgetServer();
  }
}

TEST_F(PausesTest, AResumeWhileItIsSavedIsKept) {
  StartServerFor(1.5);
  Submit("ann");
  Pass(absl::Seconds(20));
  ASSERT_TRUE(Ask(&Engine::Pause, 1).ok());
  Submit("bob");
  for (int i = 0; i < 10000 && Job(1).state == JobState::kPaused; ++i) {
    Pass(absl::Milliseconds(1));
  }
  ASSERT_EQ(Job(1).state, JobState::kPausing);
  const auto resumed = Ask(&Engine::Resume, 1);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->reason, JobReason::kGivesWay);
  server_->Crash();
  server_->Start();
  slots_.clear();  // another life has other numbers
  Pass(absl::Seconds(20));
  EXPECT_NE(Job(1).state, JobState::kPaused);
}

// Memory for one job and a half, so that urgent ones take it from the normal
// ones, and a daemon that is killed at any moment of that.
TEST_F(PausesTest, NothingIsLostWhereDaemonsDieWhileJobsGiveWay) {
  constexpr int64_t kSteps = 60, kUrgentSteps = 2;
  const std::string steps = absl::StrCat("max_steps: ", kSteps, "\n");
  const std::string urgent =
      absl::StrCat("max_steps: ", kUrgentSteps, "\n", kUrgent);
  StartServerFor(1.5);
  server_.reset();
  int gave_way = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::filesystem::remove_all(root_ + "/state");
    std::mt19937_64 random(seed);
    StartServer(2, seed, static_cast<int>(1 + random() % 2));
    Submit("ann", steps + "save_steps: 7\n");
    Submit("bob", steps);
    const auto pass = [&] { Pass(absl::Milliseconds(random() % 12000)); };
    for (int i = 0; i < 6; ++i) {
      pass();
      Submit("eve", urgent);
      if (random() % 2 == 0) continue;
      Pass(absl::Milliseconds(random() % 300));
      server_->Crash();
      server_->Start();
      slots_.clear();  // another life has other numbers
    }
    const auto all_over = [&] {
      return std::all_of(
          owners_.begin(), owners_.end(), [&](const auto& owner) {
            return IsFinal(Job(static_cast<int64_t>(owner.first)).state);
          });
    };
    for (int i = 0; i < 1000 && !all_over(); ++i) pass();
    for (const auto& [job, user] : owners_) {
      const JobRecord end = Job(static_cast<int64_t>(job));
      EXPECT_EQ(end.state, JobState::kSucceeded) << end.id << end.message;
      EXPECT_EQ(end.progress.step, user == "eve" ? kUrgentSteps : kSteps);
      gave_way += CheckSaves(static_cast<int64_t>(job));
    }
    server_.reset();
  }
  std::cout << gave_way << " jobs were saved for others\n";
  EXPECT_GT(gave_way, 40);
}

}  // namespace
}  // namespace roundhouse::sim
