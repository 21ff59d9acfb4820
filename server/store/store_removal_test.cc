// Jobs and checkpoints that are deleted, as the store has them.
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/spec/spec_error.h"
#include "server/store/store.h"

namespace roundhouse {
namespace {

using S = JobState;

absl::Status Yes(Database*) { return absl::OkStatus(); }

class StoreRemovalTest : public testing::Test {
 protected:
  StoreRemovalTest() {
    dir_ = std::filesystem::path(testing::TempDir()) /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    Open();
  }

  void Open() {
    store_.reset();
    auto opened = JobStore::Open(
        {.path = dir_ / "jobs.db", .now = [this] { return now_; }});
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }
  JobRecord Create(const std::string& request_id = "",
                   const std::string& output_name = "") {
    const auto job = store_->Create({.text = "t",
                                     .resolved = "{}",
                                     .output_name = output_name,
                                     .request_id = request_id});
    EXPECT_TRUE(job.ok()) << job.status();
    return job.value_or(JobRecord());
  }
  JobRecord CreateEnded(const std::string& request_id = "",
                        const std::string& output_name = "") {
    const JobRecord job = Create(request_id, output_name);
    EXPECT_TRUE(store_->Transition(job.id, S::kCancelled, {}).ok());
    return job;
  }
  absl::Status Remove(const std::string& id) {
    return store_->RemoveJob(
        id, {.output_path = "/o", .message = "deleted by anna"}, Yes);
  }

  std::filesystem::path dir_;
  absl::Time now_ = absl::FromUnixSeconds(1000000000);
  std::unique_ptr<JobStore> store_;
};

TEST_F(StoreRemovalTest, NobodyFindsAJobThatWasDeleted) {
  const JobRecord job = CreateEnded("", "name");
  const JobRecord other = CreateEnded();
  ASSERT_TRUE(store_->AddCheckpoint(job.id, {.step = 2, .path = "/c"}).ok());
  ASSERT_TRUE(Remove(job.id).ok());
  for (int opened = 0; opened < 2; ++opened) {
    const auto got = store_->Get(job.id);
    EXPECT_TRUE(absl::IsNotFound(got.status()));
    EXPECT_EQ(got.status().message(), "job-1 was deleted");
    const auto page = store_->List({}, std::nullopt, 10);
    ASSERT_EQ(page->jobs.size(), 1u);
    EXPECT_EQ(page->jobs[0].id, other.id);
    EXPECT_EQ((*store_->CountByState())[S::kCancelled], 1);
    EXPECT_TRUE(store_->ListCheckpoints(job.id)->empty());
    EXPECT_TRUE(absl::IsNotFound(store_->ListEvents(job.id, 0, 9).status()));
    EXPECT_EQ(*store_->FindOutputName("name"), std::nullopt);
    EXPECT_TRUE(
        absl::IsNotFound(store_->Transition(job.id, S::kQueued, {}).status()));
    Open();
  }
  // Its name is free, and its id is nobody's.
  EXPECT_EQ(CreateEnded("", "name").id, "job-3");
  EXPECT_EQ((*store_->CountByState())[S::kCancelled], 2);
}

TEST_F(StoreRemovalTest, WhatItsFilesAreIsKnownUntilTheyAreGone) {
  const JobRecord job = CreateEnded();
  ASSERT_TRUE(Remove(job.id).ok());
  Open();
  const auto removed = store_->RemovedJobs();
  ASSERT_EQ(removed->size(), 1u);
  EXPECT_EQ((*removed)[0].id, job.id);
  EXPECT_EQ((*removed)[0].uid, job.uid);
  EXPECT_EQ((*removed)[0].output_path, "/o");
  EXPECT_EQ(*store_->FindUid(job.uid), job.id);
  ASSERT_TRUE(store_->EndRemoveJob(job.id).ok());
  Open();
  EXPECT_TRUE(store_->RemovedJobs()->empty());
  EXPECT_TRUE(absl::IsNotFound(store_->Get(job.id).status()));
}

TEST_F(StoreRemovalTest, OnlyWhatHasEndedAndMayGoGoes) {
  const JobRecord job = Create();
  EXPECT_TRUE(absl::IsFailedPrecondition(Remove(job.id)));
  const auto no = [](Database*) { return absl::AbortedError("no"); };
  ASSERT_TRUE(store_->Transition(job.id, S::kCancelled, {}).ok());
  EXPECT_TRUE(absl::IsAborted(store_->RemoveJob(job.id, {}, no)));
  EXPECT_TRUE(absl::IsAborted(store_->RemoveCheckpoints(job.id, {}, no)));
  EXPECT_TRUE(store_->Get(job.id).ok());
  EXPECT_TRUE(absl::IsNotFound(Remove("job-9")));
  ASSERT_TRUE(Remove(job.id).ok());
  EXPECT_TRUE(absl::IsNotFound(Remove(job.id)));
}

TEST_F(StoreRemovalTest, ItsRequestMakesNoSecondJob) {
  const JobRecord job = CreateEnded("r1");
  ASSERT_TRUE(Remove(job.id).ok());
  const auto again =
      store_->Create({.text = "t", .resolved = "{}", .request_id = "r1"});
  EXPECT_TRUE(absl::IsNotFound(again.status()));
  EXPECT_EQ(again.status().message(),
            "job-1, which request_id \"r1\" made, was deleted; take a new one");
  EXPECT_TRUE(
      absl::IsNotFound(store_->FindRequest("local", "r1", "t").status()));
  // Another text is what it was before.
  const auto other =
      store_->Create({.text = "u", .resolved = "{}", .request_id = "r1"});
  EXPECT_TRUE(absl::IsInvalidArgument(other.status()));
  now_ += absl::Hours(7 * 24 + 1);
  EXPECT_EQ(Create("r1").id, "job-2");
}

TEST_F(StoreRemovalTest, WatchersHearOfIt) {
  const JobRecord job = CreateEnded();
  const int64_t before = *store_->Revision();
  ASSERT_TRUE(Remove(job.id).ok());
  ASSERT_TRUE(store_->EndRemoveJob(job.id).ok());
  for (const std::string& id : {job.id, std::string()}) {
    const auto changes = store_->ChangesAfter(0, id, 10);
    ASSERT_EQ(changes->size(), 1u) << "what came before went with it";
    const JobChange& change = (*changes)[0];
    EXPECT_EQ(change.event.revision, before + 1);
    EXPECT_EQ(change.event.type, "removed");
    EXPECT_EQ(change.event.message, "deleted by anna");
    EXPECT_EQ(change.job.id, job.id);
    EXPECT_EQ(change.job.state, S::kCancelled);
    EXPECT_EQ(change.job.output_name, "");
    EXPECT_EQ(change.job.text, "");
  }
}

TEST_F(StoreRemovalTest, RowsOfDeletedJobsGoAfterAWhile) {
  const JobRecord first = CreateEnded("r1");
  const JobRecord second = CreateEnded("r2");
  ASSERT_TRUE(Remove(first.id).ok());
  now_ += absl::Hours(8 * 24);
  // Its files may be there.
  ASSERT_TRUE(Remove(second.id).ok());
  EXPECT_TRUE(store_->FindUid(first.uid)->has_value());
  ASSERT_TRUE(store_->EndRemoveJob(first.id).ok());
  ASSERT_TRUE(Remove(CreateEnded().id).ok());
  EXPECT_FALSE(store_->FindUid(first.uid)->has_value());
  EXPECT_TRUE(store_->FindUid(second.uid)->has_value());
  Open();
  EXPECT_EQ(Create().id, "job-4");
}

TEST_F(StoreRemovalTest, RowsOfDeletedJobsAreBounded) {
  store_.reset();
  store_ = *JobStore::Open({.path = dir_ / "jobs.db", .max_removed_jobs = 3});
  JobRecord first;
  for (int i = 0; i < 5; ++i) {
    const JobRecord job = CreateEnded();
    if (i == 0) first = job;
    ASSERT_TRUE(Remove(job.id).ok());
    ASSERT_TRUE(store_->EndRemoveJob(job.id).ok());
  }
  EXPECT_FALSE(store_->FindUid(first.uid)->has_value());
  const absl::Status counted = store_->ReadWith([](Database* db) {
    const auto rows = db->QueryInt("SELECT count(*) FROM jobs");
    EXPECT_EQ(*rows, 3);
    return rows.status();
  });
  EXPECT_TRUE(counted.ok()) << counted;
}

TEST_F(StoreRemovalTest, DeletedJobsLeaveRoomForOthers) {
  store_.reset();
  store_ = *JobStore::Open({.path = dir_ / "jobs.db", .max_jobs = 1});
  const JobRecord job = CreateEnded();
  EXPECT_TRUE(absl::IsResourceExhausted(
      store_->Create({.text = "t", .resolved = "{}"}).status()));
  ASSERT_TRUE(Remove(job.id).ok());
  EXPECT_EQ(Create().id, "job-2");
}

TEST_F(StoreRemovalTest, CheckpointsGoInTwoSteps) {
  const JobRecord job = CreateEnded();
  for (const int64_t step : {2, 4, 6}) {
    ASSERT_TRUE(store_
                    ->AddCheckpoint(job.id, {.step = step,
                                             .path = absl::StrCat("/c-", step),
                                             .size_bytes = 10})
                    .ok());
  }
  // One that has no row, too.
  const GoingCheckpoints going{
      .checkpoints = {{.step = 1, .size_bytes = 5, .create_time = now_},
                      {.step = 4, .size_bytes = 10, .create_time = now_},
                      {.step = 6, .size_bytes = 10, .create_time = now_}},
      .last_path = "/c-2",
      .message = "deleted by anna"};
  ASSERT_TRUE(store_->RemoveCheckpoints(job.id, going, Yes).ok());
  Open();
  ASSERT_EQ(store_->ListCheckpoints(job.id)->size(), 1u);
  EXPECT_EQ(store_->Get(job.id)->last_checkpoint_path, "/c-2");
  const auto removed = store_->RemovedCheckpoints();
  ASSERT_EQ(removed->size(), 3u);
  EXPECT_EQ((*removed)[0].job_uid, job.uid);
  EXPECT_EQ((*removed)[0].step, 1);
  for (const int64_t step : {1, 2, 4, 6}) {
    ASSERT_TRUE(store_->EndRemoveCheckpoint(job.id, step).ok());
  }
  EXPECT_TRUE(store_->RemovedCheckpoints()->empty());
  EXPECT_EQ(store_->ListCheckpoints(job.id)->size(), 1u);
  EXPECT_EQ(store_->ListEvents(job.id, 0, 99)->events.back().message,
            "deleted by anna");
}

}  // namespace
}  // namespace roundhouse
