#include "server/store/store.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/number_from_environment.h"
#include "gtest/gtest.h"
#include "server/spec/spec_error.h"
#include "server/store/store_schema.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using S = JobState;

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rh_store.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    store_.reset();
    fs::remove_all(dir_);
  }

  StoreOptions Options() {
    StoreOptions options{.path = dir_ / "jobs.db"};
    options.now = [this] { return now_; };
    return options;
  }
  void Open(StoreOptions options) {
    store_.reset();
    auto store = JobStore::Open(std::move(options));
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void Open() { Open(Options()); }
  JobRecord CreateNamed(const std::string& output_name) {
    auto job = store_->Create(
        {.text = "t", .resolved = "{}", .output_name = output_name});
    EXPECT_TRUE(job.ok()) << job.status();
    return job.value_or(JobRecord());
  }
  JobRecord Create(const std::string& request_id = "") {
    auto job = store_->Create(
        {.text = "t", .resolved = "{}", .request_id = request_id});
    EXPECT_TRUE(job.ok()) << job.status();
    return job.value_or(JobRecord());
  }
  void Move(const std::string& id, std::vector<S> states) {
    for (S s : states) {
      const auto moved = store_->Transition(id, s, {});
      ASSERT_TRUE(moved.ok()) << moved.status();
      EXPECT_EQ(moved->state, s);
    }
  }

  fs::path dir_;
  absl::Time now_ = absl::FromUnixSeconds(1000000000);
  std::unique_ptr<JobStore> store_;
};

TEST_F(StoreTest, SaysHowLongCommitsTake) {
  std::atomic<int> commits{0};
  StoreOptions options = Options();
  options.on_commit = [&commits](absl::Duration took) {
    EXPECT_GE(took, absl::ZeroDuration());
    ++commits;
  };
  Open(options);
  Create();
  Create();
  store_.reset();
  EXPECT_EQ(commits, 2);
}

TEST_F(StoreTest, AJobIsThereAfterReopening) {
  Open();
  const JobRecord made = CreateNamed("o");
  EXPECT_EQ(made.id, "job-1");
  EXPECT_EQ(made.uid.size(), 32u);
  EXPECT_EQ(made.state, S::kValidating);
  Move(made.id, {S::kQueued, S::kLoading, S::kRunning});
  Open();
  const auto job = store_->Get(made.id);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->uid, made.uid);
  EXPECT_EQ(job->state, S::kRunning);
  EXPECT_EQ(job->text, "t");
  EXPECT_EQ(job->output_name, "o");
  EXPECT_EQ(job->create_time, now_);
  EXPECT_EQ(job->start_time, now_);
  EXPECT_FALSE(job->end_time.has_value());
  EXPECT_EQ(job->attempts, 1);
}

TEST_F(StoreTest, IllegalTransitionsAreRefusedAndLeaveNoTrace) {
  Open();
  const std::string id = Create().id;
  const int64_t before = *store_->Revision();
  const auto result = store_->Transition(id, S::kSucceeded, {});
  EXPECT_TRUE(absl::IsFailedPrecondition(result.status()));
  EXPECT_EQ(*store_->Revision(), before);
  EXPECT_EQ(store_->Get(id)->state, S::kValidating);
  EXPECT_TRUE(
      absl::IsNotFound(store_->Transition("job-99", S::kQueued, {}).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->Get("nonsense").status()));
}

TEST_F(StoreTest, FailureKeepsReasonAndMessage) {
  Open();
  const std::string id = Create().id;
  ASSERT_TRUE(store_
                  ->Transition(id, S::kFailed,
                               {.reason = JobReason::kInvalidDataset,
                                .message = "train.jsonl:3: no text"})
                  .ok());
  Open();
  const auto job = store_->Get(id);
  EXPECT_EQ(job->reason, JobReason::kInvalidDataset);
  EXPECT_EQ(job->message, "train.jsonl:3: no text");
  EXPECT_EQ(job->end_time, now_);
}

TEST_F(StoreTest, TheSameRequestGivesTheSameJobForSevenDays) {
  Open();
  const JobRecord first = Create("r1");
  bool created = true;
  Open();
  auto again = store_->Create({.text = "t", .request_id = "r1"}, &created);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(created);
  EXPECT_EQ(again->uid, first.uid);
  const auto found = store_->FindRequest("local", "r1", "t");
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->uid, first.uid);
  EXPECT_FALSE(store_->FindRequest("local", "r2", "t")->has_value());

  const auto other = store_->Create({.text = "u", .request_id = "r1"});
  EXPECT_TRUE(absl::IsInvalidArgument(other.status()));
  EXPECT_EQ(ErrorField(other.status()), "request_id");
  EXPECT_FALSE(store_->FindRequest("local", "r1", "u").ok());

  now_ += absl::Hours(7 * 24) + absl::Seconds(1);
  EXPECT_FALSE(store_->FindRequest("local", "r1", "t")->has_value());
  EXPECT_NE(store_->Create({.text = "t", .request_id = "r1"})->uid, first.uid);
}

TEST_F(StoreTest, ManyThreadsOneRequestOneJob) {
  Open();
  std::vector<std::string> uids(16);
  std::vector<std::thread> threads;
  for (std::string& uid : uids) {
    threads.emplace_back([&] { uid = Create("same").uid; });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(std::set<std::string>(uids.begin(), uids.end()).size(), 1u);
}

TEST_F(StoreTest, OnlyOneOfTwoRacingTransitionsWins) {
  Open();
  const std::string id = Create().id;
  Move(id, {S::kQueued});
  std::atomic<int> won = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const S to = i % 2 == 0 ? S::kCancelled : S::kFailed;
      won += store_->Transition(id, to, {}).ok() ? 1 : 0;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(won, 1);
}

TEST_F(StoreTest, ProgressIsInMemoryAndGoesToDiskWithATransition) {
  Open();
  const std::string id = Create().id;
  Move(id, {S::kQueued, S::kLoading, S::kRunning});
  JobProgress p{.step = 7, .total_steps = 9, .epoch = 0.5, .tokens = 70};
  p.loss = 2.5;
  p.device_use = {{.device = 1, .compute_seconds = 3, .bubble_seconds = 1}};
  store_->UpdateProgress(id, p);
  EXPECT_EQ(store_->LiveJobs().at(id), 1u);
  EXPECT_EQ(store_->Get(id)->progress, p);
  Move(id, {S::kPausing});
  Open();
  EXPECT_EQ(store_->Get(id)->progress, p);
  Move(id, {S::kPaused, S::kCancelled});
  store_->UpdateProgress(id, {.step = 8});
  EXPECT_EQ(store_->Get(id)->progress.step, 7) << "it has ended";
}

TEST_F(StoreTest, WhoeverSeesTheEndSeesTheLastRecord) {
  Open();
  const std::string id = Create().id;
  Move(id, {S::kQueued, S::kLoading, S::kRunning, S::kFinalizing});
  JobProgress p{.step = 9, .total_steps = 9};
  p.tokens_per_second = 1341;  // of a running job only
  p.eta = absl::Now();
  store_->UpdateProgress(id, p);
  std::optional<JobRecord> first;  // as soon as the commit can be seen
  std::thread reader([&] {
    while (!first.has_value()) {
      const auto job = store_->Get(id);
      if (job->state == S::kSucceeded) first = *job;
    }
  });
  Move(id, {S::kSucceeded});
  reader.join();
  EXPECT_EQ(first->progress.step, 9);
  EXPECT_EQ(first->progress, store_->Get(id)->progress);
}

TEST_F(StoreTest, AttemptsAreCounted) {
  Open();
  const std::string id = Create().id;
  Move(id, {S::kQueued, S::kLoading, S::kRunning, S::kPausing, S::kPaused,
            S::kQueued, S::kLoading, S::kRunning, S::kRecovering, S::kLoading});
  EXPECT_EQ(store_->Get(id)->attempts, 3);
}

TEST_F(StoreTest, CheckpointsAndDetails) {
  Open();
  const std::string id = Create().id;
  ASSERT_TRUE(store_->AddCheckpoint(id, {.step = 5, .path = "/o/c-5"}).ok());
  ASSERT_TRUE(store_->AddCheckpoint(id, {.step = 10, .path = "/o/c-10"}).ok());
  EXPECT_EQ(store_->Get(id)->last_checkpoint_path, "/o/c-10");
  // What was saved since somebody looked stays.
  ASSERT_TRUE(store_->KeepCheckpoints(id, {5}).ok());
  EXPECT_EQ(store_->Get(id)->last_checkpoint_path, "/o/c-10");
  ASSERT_TRUE(store_->KeepCheckpoints(id, {5, 12}).ok());
  EXPECT_EQ(store_->Get(id)->last_checkpoint_path, "/o/c-5");
  DatasetCounts counts{.train_sequences = 3, .sha256 = "ab"};
  counts.bigram_validation_loss = 1.5;
  ASSERT_TRUE(
      store_->SetDetails(id, {.output_path = "/o", .dataset = counts}).ok());
  ASSERT_TRUE(store_->SetDetails(id, {}).ok());
  Open();
  const auto job = store_->Get(id);
  EXPECT_EQ(job->output_path, "/o");
  EXPECT_EQ(job->dataset, counts);
  const auto checkpoints = store_->ListCheckpoints(id);
  ASSERT_EQ(checkpoints->size(), 1u);
  EXPECT_EQ((*checkpoints)[0].step, 5);
}

TEST_F(StoreTest, APriorityIsKeptAndToldOnce) {
  Open();
  const auto made =
      store_->Create({.text = "t", .priority = Priority::kUrgent});
  EXPECT_EQ(made->priority, Priority::kUrgent);
  const std::string id = Create().id;
  Move(id, {S::kQueued, S::kLoading, S::kRunning});
  store_->UpdateProgress(id, {.step = 4});
  int asked = 0;
  PriorityChange change = {.priority = Priority::kUrgent};
  change.may_be_urgent = [&asked](Database*) {
    return ++asked == 1 ? absl::PermissionDeniedError("no") : absl::OkStatus();
  };
  EXPECT_TRUE(
      absl::IsPermissionDenied(store_->SetPriority(id, change).status()));
  change.revision = store_->Get(id)->revision;
  const auto changed = store_->SetPriority(id, change);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(changed->priority, Priority::kUrgent);
  EXPECT_EQ(changed->state, S::kRunning);
  EXPECT_TRUE(absl::IsAborted(store_->SetPriority(id, change).status()));
  change.revision = 0;
  EXPECT_EQ(store_->SetPriority(id, change)->revision, changed->revision);
  EXPECT_EQ(asked, 2);
  const auto told = store_->ChangesAfter(changed->revision - 1, id, 9);
  ASSERT_EQ(told->size(), 1u);
  EXPECT_EQ((*told)[0].event.type, "priority");
  EXPECT_EQ((*told)[0].event.message, "urgent");
  EXPECT_EQ((*told)[0].event.step, 4);
  Open();
  EXPECT_EQ(store_->Get(id)->priority, Priority::kUrgent);
  EXPECT_EQ(store_->List({}, std::nullopt, 1)->jobs[0].priority,
            Priority::kUrgent);
  ASSERT_TRUE(store_->SetPriority(id, {.priority = Priority::kBackfill}).ok());
  Open();
  EXPECT_EQ(store_->Get(id)->priority, Priority::kBackfill);
  Move(id, {S::kFailed});
  EXPECT_TRUE(
      absl::IsFailedPrecondition(store_->SetPriority(id, change).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->SetPriority("job-9", change).status()));
}

TEST_F(StoreTest, ListsArePagedNewestFirst) {
  Open();
  for (int i = 0; i < 7; ++i) Create();
  Move("job-3", {S::kQueued});
  Move("job-6", {S::kQueued});
  auto page = store_->List({}, std::nullopt, 3);
  ASSERT_EQ(page->jobs.size(), 3u);
  EXPECT_EQ(page->jobs[0].id, "job-7");
  EXPECT_EQ(page->jobs[0].text, "");
  ASSERT_TRUE(page->next_before.has_value());
  page = store_->List({}, page->next_before, 4);
  ASSERT_EQ(page->jobs.size(), 4u);
  EXPECT_EQ(page->jobs[3].id, "job-1");
  EXPECT_FALSE(page->next_before.has_value());
  page = store_->List({S::kQueued, S::kRunning}, std::nullopt, 10);
  ASSERT_EQ(page->jobs.size(), 2u);
  EXPECT_EQ(page->jobs[1].id, "job-3");
  EXPECT_EQ(store_->CountByState()->at(S::kQueued), 2);
  EXPECT_EQ(page->revision, *store_->Revision());
}

TEST_F(StoreTest, ChangesComeInOrderWithoutGaps) {
  Open();
  const std::string a = Create().id;
  const std::string b = Create().id;
  Move(a, {S::kQueued, S::kLoading});
  Move(b, {S::kQueued});
  ASSERT_TRUE(store_->AddEvent(b, "note", "hello").ok());
  const auto all = store_->ChangesAfter(0, "", 100);
  ASSERT_EQ(all->size(), 6u);
  for (size_t i = 0; i < all->size(); ++i) {
    EXPECT_EQ((*all)[i].event.revision, static_cast<int64_t>(i) + 1);
  }
  EXPECT_EQ((*all)[2].job.state, S::kQueued) << "as it was then";
  const auto of_b = store_->ChangesAfter(2, b, 100);
  ASSERT_EQ(of_b->size(), 2u);
  EXPECT_EQ((*of_b)[1].event.message, "hello");
  const auto events = store_->ListEvents(a, 0, 2);
  EXPECT_EQ(events->events.size(), 2u);
  EXPECT_TRUE(events->more);
  EXPECT_EQ(
      store_->ListEvents(a, events->events.back().revision, 2)->events.size(),
      1u);
}

TEST_F(StoreTest, BelowTheCompactionFloorIsOutOfRange) {
  StoreOptions options = Options();
  options.max_events = 100;
  Open(options);
  const std::string id = Create().id;
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(store_->AddEvent(id, "note", "x").ok());
  }
  EXPECT_TRUE(absl::IsOutOfRange(store_->ChangesAfter(1, "", 10).status()));
  const auto kept = store_->ChangesAfter(156, "", 1);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ((*kept)[0].event.revision, 157);
  Open(options);
  Create();
  EXPECT_EQ(*store_->Revision(), 302) << "revisions are never used again";
}

TEST_F(StoreTest, TheListenerSeesCommitsAndProgress) {
  Open();
  std::atomic<int> calls = 0;
  store_->SetListener([&] { ++calls; });
  const std::string id = Create().id;
  Move(id, {S::kQueued});
  store_.reset();
  EXPECT_EQ(calls, 2);
}

TEST_F(StoreTest, TooManyJobs) {
  StoreOptions options = Options();
  options.max_jobs = 2;
  Open(options);
  Create();
  Create();
  EXPECT_TRUE(
      absl::IsResourceExhausted(store_->Create({.text = "x"}).status()));
}

TEST_F(StoreTest, AnOutputNameBelongsToOneJob) {
  Open();
  const std::string id = CreateNamed("first").id;
  for (int i = 0; i < 600; ++i) Create();
  EXPECT_EQ(*store_->FindOutputName("first"), id);
  EXPECT_EQ(*store_->FindOutputName("second"), std::nullopt);
  EXPECT_EQ(*store_->FindOutputName(""), std::nullopt);
  EXPECT_TRUE(store_->CheckOutputName("second").ok());
  EXPECT_TRUE(store_->CheckOutputName("").ok());
  const auto again =
      store_->Create({.text = "t", .resolved = "{}", .output_name = "first"});
  for (const absl::Status& status :
       {again.status(), store_->CheckOutputName("first")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_EQ(ErrorField(status), "output_name");
    EXPECT_TRUE(absl::StrContains(
        std::string(status.message()),
        "\"first\" is taken by another job; give another output_name"))
        << status;
  }
  EXPECT_EQ(store_->List({}, std::nullopt, 1000)->jobs.size(), 601u);
}

TEST_F(StoreTest, ManyThreadsOneOutputNameOneJob) {
  Open();
  std::atomic<int> made = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      made +=
          store_->Create({.text = "t", .resolved = "{}", .output_name = "o"})
              .ok();
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(made, 1);
}

TEST_F(StoreTest, AnOlderFileIsBroughtForward) {
  {
    auto db = Database::Open(dir_ / "jobs.db", Database::Mode::kWrite);
    ASSERT_TRUE(MigrateSchema(db->get(), 0, 1).ok());
    ASSERT_TRUE(
        (*db)
            ->Execute("INSERT INTO jobs VALUES (7, 'u', 2, 0, 'm', 1, "
                      "2, 0, 't', '{}', 'kept', 'p', 'c', 1, 9, '', "
                      "'{\"step\": 3}');"
                      "INSERT INTO attempts VALUES (7, 1, 2, 0, 0);"
                      "INSERT INTO events VALUES "
                      "(9, 7, 5, 'state', 2, 0, 'm', 3);"
                      "INSERT INTO requests SELECT 'local', 'r', "
                      "'2cf24dba', 7, 1;"
                      "INSERT INTO checkpoints VALUES (7, 3, 'c', 1, 2)")
            .ok());
  }
  Open();
  EXPECT_TRUE(store_->findings().empty());
  EXPECT_EQ(*store_->FindOutputName("kept"), "job-7");
  const auto job = store_->Get("job-7");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->text, "t");
  EXPECT_EQ(job->progress.step, 3);
  EXPECT_EQ(job->principal, "local");
  EXPECT_EQ(job->owner, "local");
  EXPECT_EQ(job->project, "default");
  EXPECT_EQ(store_->ListCheckpoints("job-7")->size(), 1u);
  EXPECT_EQ(store_->ListEvents("job-7", 0, 9)->events.size(), 1u);
  EXPECT_EQ(*store_->Revision(), 9);
  EXPECT_EQ(Create().id, "job-8");
  EXPECT_EQ(*store_->Revision(), 10);
  store_.reset();
  auto db = Database::Open(dir_ / "jobs.db", Database::Mode::kWrite);
  EXPECT_EQ(*(*db)->QueryInt("PRAGMA user_version"), kStoreSchemaVersion);
  EXPECT_EQ(*(*db)->QueryInt("SELECT count(*) FROM attempts"), 1);
}

// A file of before priorities were columns.
class OlderPriorityTest : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    auto db = Database::Open(dir_ / "jobs.db", Database::Mode::kWrite);
    ASSERT_TRUE(MigrateSchema(db->get(), 0, 5).ok());
    const auto add = [&](const std::string& uid, const std::string& resolved) {
      return (*db)->Execute(absl::StrCat(
          "INSERT INTO jobs (uid, state, reason, message, create_us, start_us, "
          "end_us, output_name, output_path, last_checkpoint, attempts, "
          "revision, dataset, progress, owner, project, principal, text, "
          "resolved, files) VALUES ('",
          uid, "', 2, 0, 'needle', 1, 2, 0, '', '', '', 1, 0, '', '{}', 'o', ",
          "'default', 'o', 't', '", resolved, "', '')"));
    };
    ASSERT_TRUE(add("a", R"({"priority": "urgent"})").ok());
    ASSERT_TRUE(add("b", R"({"priority": "normal"})").ok());
    ASSERT_TRUE(add("c", "{}").ok());
    ASSERT_TRUE(add("d", "no json").ok());
    ASSERT_TRUE(
        (*db)
            ->Execute("UPDATE meta SET value = 4 WHERE key = 'last_job'")
            .ok());
  }
};

TEST_F(OlderPriorityTest, IsThatOfTheJobFile) {
  Open();
  EXPECT_EQ(store_->Get("job-1")->priority, Priority::kUrgent);
  for (const char* id : {"job-2", "job-3", "job-4"}) {
    EXPECT_EQ(store_->Get(id)->priority, Priority::kNormal) << id;
  }
  EXPECT_EQ(store_->Get("job-1")->resolved, R"({"priority": "urgent"})");
  EXPECT_EQ(Create().id, "job-5");
}

TEST_F(OlderPriorityTest, NoDamageIsHiddenByANewChecksum) {
  std::stringstream content;
  content << std::ifstream(dir_ / "jobs.db", std::ios::binary).rdbuf();
  std::string bytes = content.str();
  const size_t at = bytes.find("needle");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'N';
  std::ofstream(dir_ / "jobs.db", std::ios::binary) << bytes;
  const absl::Status status = JobStore::Open(Options()).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "differs from its checksum"))
      << status;
}

TEST_F(StoreTest, ANewerFileIsRefused) {
  Open();
  store_.reset();
  {
    auto db = Database::Open(dir_ / "jobs.db", Database::Mode::kWrite);
    ASSERT_TRUE((*db)->Execute("PRAGMA user_version=7").ok());
  }
  const auto status = JobStore::Open(Options()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_TRUE(absl::StrContains(std::string(status.message()),
                                absl::StrCat("its version is 7, this program "
                                             "knows ",
                                             kStoreSchemaVersion)))
      << status;
}

TEST_F(StoreTest, ACorruptFileIsRefused) {
  Open();
  for (int i = 0; i < 50; ++i) Create();
  store_.reset();
  std::fstream file(dir_ / "jobs.db",
                    std::ios::in | std::ios::out | std::ios::binary);
  for (int page = 1; page < 6; ++page) {
    file.seekp(page * 4096 + 3);
    file.write("\xff\xff\xff\xff\xff\xff", 6);
  }
  file.close();
  EXPECT_TRUE(absl::IsDataLoss(JobStore::Open(Options()).status()));
  std::ofstream(dir_ / "jobs.db", std::ios::trunc) << "no database at all....";
  EXPECT_TRUE(absl::IsDataLoss(JobStore::Open(Options()).status()));
}

// Makes jobs, moves them, and says on `out` what was acknowledged, until
// killed.
[[noreturn]] void WriteUntilKilled(const std::string& path, int out) {
  auto store = JobStore::Open({.path = path});
  if (!store.ok()) _exit(3);
  const auto work = [&](int thread) {
    for (int i = 0;; ++i) {
      const auto job = (*store)->Create(
          {.text = "t",
           .request_id = absl::StrCat(getpid(), "-", thread, "-", i)});
      if (!job.ok() || !(*store)->Transition(job->id, S::kQueued, {}).ok()) {
        _exit(4);
      }
      const std::string line = absl::StrCat(job->id, " ", job->uid, "\n");
      if (write(out, line.data(), line.size()) < 0) _exit(5);
    }
  };
  std::thread other(work, 1);
  work(0);
  _exit(6);
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, n);
  }
  return text;
}

TEST_F(StoreTest, NothingAcknowledgedIsLostByKillNine) {
  const uint64_t rounds = NumberFromEnvironment("ROUNDHOUSE_COUNT", 8);
  std::mt19937_64 rng(7);
  std::map<std::string, std::string> acknowledged;
  size_t jobs = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    if (round % 20 == 0) {  // A store that stays small enough to look at.
      fs::remove_all(dir_);
      fs::create_directory(dir_);
      acknowledged.clear();
    }
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(fds[0]);
      WriteUntilKilled(dir_ / "jobs.db", fds[1]);
    }
    close(fds[1]);
    // Killed after so many acknowledged bytes: in the middle of later writes.
    std::string text(200 + rng() % 4000, '\0');
    size_t got = 0;
    while (got < text.size()) {
      const ssize_t n = read(fds[0], text.data() + got, text.size() - got);
      ASSERT_GT(n, 0) << "the child ended by itself";
      got += n;
    }
    ASSERT_EQ(kill(child, SIGKILL), 0);
    text += ReadAll(fds[0]);
    close(fds[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    std::istringstream lines(text);
    for (std::string id, uid; lines >> id >> uid;) {
      EXPECT_TRUE(acknowledged.emplace(id, uid).second) << id << " twice";
      ++jobs;
    }
    Open();
    EXPECT_TRUE(store_->findings().empty()) << store_->findings()[0];
    for (const auto& [id, uid] : acknowledged) {
      const auto job = store_->Get(id);
      ASSERT_TRUE(job.ok()) << job.status();
      EXPECT_EQ(job->uid, uid);
      EXPECT_EQ(job->state, S::kQueued);
    }
    const auto changes = store_->ChangesAfter(0, "", 1000000);
    EXPECT_EQ(static_cast<int64_t>(changes->size()), *store_->Revision());
    store_.reset();
  }
  std::cout << rounds << " kills, " << jobs << " jobs acknowledged\n";
  EXPECT_GT(jobs, 50u);
}

// The attempt goes on while a PAUSED job keeps its memory; the mark is gone
// with the next transition, whatever progress is in memory.
TEST_F(StoreTest, AJobThatKeepsItsMemorySaysSo) {
  Open();
  const std::string id = Create().id;
  Move(id, {S::kQueued, S::kLoading, S::kRunning});
  store_->UpdateProgress(id, {.step = 3});
  ASSERT_TRUE(
      store_
          ->Transition(id, S::kPaused, {JobReason::kStorageFull, "full", true})
          .ok());
  EXPECT_TRUE(store_->Get(id)->progress.memory_kept);
  store_->UpdateProgress(id, {.step = 4});
  EXPECT_TRUE(store_->Get(id)->progress.memory_kept);
  EXPECT_EQ(store_->Get(id)->progress.step, 4);
  Open();
  EXPECT_TRUE(store_->Get(id)->progress.memory_kept);
  EXPECT_EQ(store_->Get(id)->progress.step, 3);
  Move(id, {S::kRunning});
  EXPECT_FALSE(store_->Get(id)->progress.memory_kept);
  EXPECT_EQ(store_->Get(id)->attempts, 1);
  ASSERT_TRUE(store_->Transition(id, S::kPaused, {.memory_kept = true}).ok());
  Move(id, {S::kRecovering, S::kPaused});
  EXPECT_FALSE(store_->Get(id)->progress.memory_kept);
}

// A file that may not grow is a full disk, however SQLite calls it.
TEST_F(StoreTest, AFileThatMayNotGrowIsAFullDisk) {
  Open();
  const std::string id = Create().id;
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none = {1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const absl::Status full = store_->Transition(id, S::kQueued, {}).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_EQ(ErrorReason(full), FieldReason::kStorageFull);
  EXPECT_EQ(store_->Get(id)->state, S::kValidating);
  Move(id, {S::kQueued});
}

TEST_F(StoreTest, AFullDiskRefusesAndLosesNothing) {
  Open();
  const std::string id = Create().id;
  store_.reset();
  {
    auto db = Database::Open(dir_ / "jobs.db", Database::Mode::kWrite);
    const int64_t pages = *(*db)->QueryInt("PRAGMA page_count");
    ASSERT_TRUE(
        (*db)->QueryInt(absl::StrCat("PRAGMA max_page_count=", pages)).ok());
    // The limit belongs to the connection: fill through a writer of our own.
    StoreWriter writer(*std::move(db), {});
    const absl::Status full = writer.Run([](Database* d) {
      return d->Execute("UPDATE jobs SET text = zeroblob(1000000)");
    });
    EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
    EXPECT_EQ(ErrorReason(full), FieldReason::kStorageFull);
    EXPECT_TRUE(writer
                    .Run([](Database* d) {
                      return d->Execute("UPDATE jobs SET message = 'm'");
                    })
                    .ok());
  }
  Open();
  EXPECT_EQ(store_->Get(id)->text, "t");
  EXPECT_EQ(store_->Get(id)->message, "m");
}

}  // namespace
}  // namespace roundhouse
