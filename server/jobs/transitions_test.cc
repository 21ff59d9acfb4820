#include "server/jobs/transitions.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

const absl::Status kFull =
    FieldError(absl::StatusCode::kResourceExhausted, FieldReason::kStorageFull,
               "", "disk full");
const absl::Status kBroken = absl::UnavailableError("disk I/O error");

class TransitionsTest : public testing::Test {
 protected:
  TransitionsTest()
      : folder_(testing::TempDir() + "/transitions_test"),
        loop_(*EventLoop::Create()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    StoreOptions options{.path = folder_ + "/jobs.db"};
    options.fault = [this] {
      ++commits_;
      return fault_ ? fault_() : absl::OkStatus();
    };
    store_ = *JobStore::Open(options);
    reserve_ = std::make_unique<DiskReserve>(folder_);
    transitions_ = std::make_unique<Transitions>(*loop_, *store_, *reserve_);
  }
  ~TransitionsTest() override {
    transitions_.reset();
    store_.reset();
    fs::remove_all(folder_);
  }

  std::string NewJobOf(const std::vector<JobState>& states) {
    const std::string id = store_->Create({.text = "t", .resolved = "{}"})->id;
    for (const JobState state : states) {
      EXPECT_TRUE(store_->Transition(id, state, {}).ok());
    }
    return id;
  }
  JobState State(const std::string& id) { return store_->Get(id)->state; }
  void Want(const std::string& id, JobState to) {
    transitions_->Want(id, to, {}, [this, id, to] {
      EXPECT_EQ(State(id), to) << "carried out before it was stored";
      stored_.push_back(absl::StrCat(id, " ", JobStateName(to)));
    });
  }
  // Until nothing waits.
  void RunLoop() {
    const std::function<void()> look = [&] {
      bool waits = false;
      for (const std::string& id : jobs_) waits |= transitions_->Waits(id);
      if (!waits) return loop_->Quit();
      loop_->After(absl::Milliseconds(1), look);
    };
    look();
    loop_->Run();
  }

  const std::string folder_;
  std::unique_ptr<EventLoop> loop_;
  std::atomic<int> commits_{0};
  std::function<absl::Status()> fault_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<DiskReserve> reserve_;
  std::unique_ptr<Transitions> transitions_;
  std::vector<std::string> jobs_;
  std::vector<std::string> stored_;
};

TEST_F(TransitionsTest, WhatTheStoreTakesIsCarriedOutAtOnce) {
  const std::string id = NewJobOf({});
  Want(id, JobState::kQueued);
  EXPECT_EQ(stored_.size(), 1u);
  EXPECT_FALSE(transitions_->Waits(id));
  const auto asked = transitions_->Ask(id, JobState::kPaused, {});
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->state, JobState::kPaused);
}

class RefusalTest : public TransitionsTest,
                    public testing::WithParamInterface<absl::StatusCode> {};

// From each state of a job's life, for each kind of refusal.
TEST_P(RefusalTest, WhatIsWantedIsAskedForUntilItIsStored) {
  using S = JobState;
  const std::vector<std::pair<std::vector<S>, S>> lives = {
      {{}, S::kQueued},
      {{}, S::kFailed},
      {{S::kQueued, S::kLoading}, S::kRunning},
      {{S::kQueued, S::kLoading, S::kRunning}, S::kFinalizing},
      {{S::kQueued, S::kLoading, S::kRunning}, S::kPaused},
      {{S::kQueued, S::kLoading, S::kRunning, S::kPausing}, S::kPaused},
      {{S::kQueued, S::kLoading, S::kRunning}, S::kRecovering},
      {{S::kQueued, S::kLoading, S::kRunning, S::kCancelling}, S::kCancelled},
      {{S::kQueued, S::kLoading, S::kRunning, S::kFinalizing}, S::kSucceeded}};
  for (const auto& [states, to] : lives) jobs_.push_back(NewJobOf(states));
  int refusals = 14;
  fault_ = [&] {
    return refusals-- > 0 ? absl::Status(GetParam(), "no") : absl::OkStatus();
  };
  for (size_t i = 0; i < lives.size(); ++i) Want(jobs_[i], lives[i].second);
  EXPECT_TRUE(stored_.empty());
  for (const std::string& job : jobs_) {
    EXPECT_TRUE(transitions_->Waits(job));
    const auto asked = transitions_->Ask(job, S::kCancelling, {});
    EXPECT_FALSE(asked.ok());
    EXPECT_TRUE(absl::StrContains(asked.status().message(),
                                  "the job store can't be written"))
        << asked.status();
  }
  RunLoop();
  EXPECT_EQ(stored_.size(), lives.size());
  for (size_t i = 0; i < lives.size(); ++i) {
    EXPECT_EQ(State(jobs_[i]), lives[i].second);
    // Once each.
    const auto events = store_->ListEvents(jobs_[i], 0, 100);
    EXPECT_EQ(events->events.size(), lives[i].first.size() + 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Refusals, RefusalTest,
                         testing::Values(absl::StatusCode::kResourceExhausted,
                                         absl::StatusCode::kUnavailable,
                                         absl::StatusCode::kInternal,
                                         absl::StatusCode::kDataLoss));

TEST_F(TransitionsTest, NothingOfAJobIsStoredBeforeWhatWaits) {
  const std::string id =
      NewJobOf({JobState::kQueued, JobState::kLoading, JobState::kRunning});
  const std::string other = NewJobOf({});
  jobs_ = {id, other};
  fault_ = [] { return kBroken; };
  Want(id, JobState::kFinalizing);
  fault_ = nullptr;
  // The store would take it; the job's own order forbids it.
  int written = 0;
  transitions_->Want(id, "its output", [&] {
    EXPECT_EQ(State(id), JobState::kFinalizing);
    ++written;
    return absl::OkStatus();
  });
  Want(id, JobState::kSucceeded);
  EXPECT_EQ(written, 0);
  Want(other, JobState::kQueued);
  EXPECT_EQ(stored_, std::vector<std::string>{other + " QUEUED"});
  RunLoop();
  EXPECT_EQ(written, 1);
  EXPECT_EQ(stored_,
            (std::vector<std::string>{other + " QUEUED", id + " FINALIZING",
                                      id + " SUCCEEDED"}));
}

TEST_F(TransitionsTest, OneRowThatIsRefusedHoldsBackNoOtherJob) {
  const std::string bad = NewJobOf({});
  const std::string good = NewJobOf({});
  jobs_ = {good};
  int tries = 0;
  transitions_->Want(bad, "a corrupt row", [&] {
    ++tries;
    return absl::DataLossError("checksum");
  });
  fault_ = [] { return kBroken; };
  Want(good, JobState::kQueued);
  fault_ = nullptr;
  RunLoop();
  EXPECT_EQ(State(good), JobState::kQueued);
  EXPECT_TRUE(transitions_->Waits(bad));
  EXPECT_GE(tries, 2);
}

TEST_F(TransitionsTest, WhatFollowsMayAskForMoreOfTheSameJob) {
  const std::string id = NewJobOf({});
  jobs_ = {id};
  fault_ = [] { return kFull; };
  bool asked = false;
  transitions_->Want(id, JobState::kQueued, {}, [&] {
    asked = transitions_->Ask(id, JobState::kLoading, {}).ok();
    Want(id, JobState::kRunning);
  });
  fault_ = nullptr;
  RunLoop();
  EXPECT_TRUE(asked);
  EXPECT_EQ(State(id), JobState::kRunning);
}

TEST_F(TransitionsTest, AFullDiskGetsTheReserveOnceAndForExistingJobs) {
  ASSERT_TRUE(reserve_->Fill().ok());
  const std::string id = NewJobOf({});
  fault_ = [this] { return reserve_->held() ? kFull : absl::OkStatus(); };
  const auto asked = transitions_->Ask(id, JobState::kCancelled, {});
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_FALSE(reserve_->held());
  const std::string other = NewJobOf({});
  fault_ = [] { return kFull; };
  commits_ = 0;
  const absl::Status refused =
      transitions_->Ask(other, JobState::kCancelled, {}).status();
  EXPECT_EQ(commits_, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(ErrorReason(refused), FieldReason::kStorageFull);
  EXPECT_TRUE(absl::StrContains(refused.message(), "nothing was done"));
  EXPECT_EQ(State(other), JobState::kValidating);
  EXPECT_FALSE(transitions_->Waits(other));
}

TEST_F(TransitionsTest, OtherRefusalsLeaveTheReserve) {
  ASSERT_TRUE(reserve_->Fill().ok());
  const std::string id = NewJobOf({});
  fault_ = [] { return kBroken; };
  const absl::Status refused =
      transitions_->Ask(id, JobState::kCancelled, {}).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_TRUE(reserve_->held());
}

TEST_F(TransitionsTest, WhoIsOverALimitLeavesTheReserveAndTheStoreIsWell) {
  ASSERT_TRUE(reserve_->Fill().ok());
  const std::string id = NewJobOf({});
  PriorityChange change = {.priority = Priority::kUrgent};
  change.may_be_urgent = [](Database*) {
    return RequestError(absl::StatusCode::kResourceExhausted,
                        FieldReason::kQuota, "user:anna", "too many");
  };
  const auto set = [&] {
    return transitions_->Ask(id,
                             [&] { return store_->SetPriority(id, change); });
  };
  EXPECT_EQ(set().status().message(), "too many");
  EXPECT_TRUE(reserve_->held());
  change.may_be_urgent = [](Database*) { return absl::OkStatus(); };
  change.revision = 7;
  EXPECT_TRUE(absl::IsAborted(set().status())) << set().status();
  change.revision = 0;
  EXPECT_EQ(set()->priority, Priority::kUrgent);
  fault_ = [] { return kBroken; };
  change.priority = Priority::kNormal;
  EXPECT_TRUE(absl::IsUnavailable(set().status()));
  EXPECT_EQ(store_->Get(id)->priority, Priority::kUrgent);
}

TEST_F(TransitionsTest, IllegalOnesAreRefusedOrDropped) {
  const std::string id = NewJobOf({});
  EXPECT_TRUE(absl::IsFailedPrecondition(
      transitions_->Ask(id, JobState::kRunning, {}).status()));
  EXPECT_TRUE(absl::IsNotFound(
      transitions_->Ask("job-99", JobState::kQueued, {}).status()));
  Want(id, JobState::kRunning);
  Want("job-99", JobState::kQueued);
  EXPECT_TRUE(stored_.empty());
  EXPECT_FALSE(transitions_->Waits(id));
  EXPECT_EQ(State(id), JobState::kValidating);
}

TEST_F(TransitionsTest, WhatFollowsAnEventComesThoughTheJobIsGone) {
  int over = 0;
  transitions_->Want(
      "job-99", "a warning",
      [this] { return store_->AddEvent("job-99", "note", "text"); },
      [&over] { ++over; });
  EXPECT_EQ(over, 1);
}

// A commit may be on disk though its answer was an error.
TEST_F(TransitionsTest, WhatIsStoredAlreadyIsCarriedOut) {
  const std::string id = NewJobOf({JobState::kQueued});
  Want(id, JobState::kQueued);
  EXPECT_EQ(stored_, std::vector<std::string>{id + " QUEUED"});
}

TEST_F(TransitionsTest, WhatWaitsIsBoundedAndKeepsTheTransitions) {
  const std::string id = NewJobOf({});
  jobs_ = {id};
  fault_ = [] { return kBroken; };
  Want(id, JobState::kQueued);
  std::vector<int> written;
  int over = 0;
  for (int i = 0; i < 3 * static_cast<int>(kMaxWantedOfJob); ++i) {
    transitions_->Want(
        id, "an event",
        [&written, i] {
          written.push_back(i);
          return absl::OkStatus();
        },
        [&over] { ++over; });
  }
  fault_ = nullptr;
  RunLoop();
  EXPECT_EQ(over, 3 * static_cast<int>(kMaxWantedOfJob))
      << "whoever waits for one that was given up waits for ever";
  EXPECT_EQ(State(id), JobState::kQueued);
  EXPECT_LE(written.size(), kMaxWantedOfJob);
  ASSERT_FALSE(written.empty());
  EXPECT_EQ(written.back(), 3 * static_cast<int>(kMaxWantedOfJob) - 1);
}

}  // namespace
}  // namespace roundhouse
