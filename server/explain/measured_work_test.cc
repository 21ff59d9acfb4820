#include "server/explain/measured_work.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/explain/state_since.h"
#include "server/spec/spec.h"
#include "server/testing/fresh_store.h"

namespace roundhouse {
namespace {

std::string Spec(int batch, const std::string& more = "") {
  const auto spec = ParseJobSpec(
      absl::StrCat("model_name_or_path: m\ndataset: d\nmax_steps: 10\n",
                   "batch_size: ", batch, "\nmicro_batch_size: 1\n", more),
      "job");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return ResolvedSpec::Resolve(*spec, 2).ToJson();
}
constexpr char kResumed[] = "resume_from_checkpoint: x\n";

TEST(MeasuredWorkTest, TheNewestIsFoundAndTheOldestGoes) {
  MeasuredWork measured;
  measured.Note(0, {.step_device_seconds = 1});
  EXPECT_EQ(measured.Find(0), nullptr);
  for (uint64_t work = 1; work <= kMaxMeasuredWork; ++work) {
    measured.Note(work, {.step_device_seconds = 1});
  }
  measured.Note(1, {.step_device_seconds = 2});
  measured.Note(kMaxMeasuredWork + 1, {.step_device_seconds = 3});
  EXPECT_EQ(measured.Find(1)->step_device_seconds, 2);
  EXPECT_EQ(measured.Find(2), nullptr);
  EXPECT_EQ(measured.Find(3)->step_device_seconds, 1);
}

TEST(MeasuredWorkTest, WorkIsWhatStepsDo) {
  EXPECT_EQ(WorkOf(Spec(4)), WorkOf(Spec(4, kResumed)));
  EXPECT_NE(WorkOf(Spec(4)), WorkOf(Spec(8)));
  EXPECT_EQ(WorkOf("no JSON"), 0u);
  JobRecord job;
  job.resolved = Spec(4);
  EXPECT_EQ(StepsOf(job), 10);
  job.progress.total_steps = 7;
  EXPECT_EQ(StepsOf(job), 7);
  job = {};
  EXPECT_EQ(StepsOf(job), 0);
}

class StoredWorkTest : public testing::Test {
 protected:
  // A job of this spec that has succeeded.
  std::string Add(const std::string& resolved, int attempts = 1) {
    const auto made = store_->Create({.text = absl::StrCat("t", ++made_),
                                      .resolved = resolved,
                                      .owner = "ann"});
    EXPECT_TRUE(made.ok()) << made.status();
    const std::string id = made->id;
    const auto move = [&](JobState state) {
      EXPECT_TRUE(store_->Transition(id, state, {}).ok());
    };
    move(JobState::kQueued);
    for (int i = 0; i < attempts; ++i) {
      if (i > 0) {
        move(JobState::kRecovering);
        move(JobState::kQueued);
      }
      move(JobState::kLoading);
    }
    move(JobState::kRunning);
    JobProgress progress;
    progress.step = 10;
    progress.total_steps = 10;
    progress.device_use = {{0, 15, 1}, {1, 25, 1}};
    store_->UpdateProgress(id, progress);
    move(JobState::kFinalizing);
    move(JobState::kSucceeded);
    return id;
  }

  int made_ = 0;
  const std::unique_ptr<JobStore> store_ =
      *JobStore::Open({.path = FreshStorePath()});
};

TEST_F(StoredWorkTest, JobsThatRanOnceFromTheirFirstStepSayWhatAStepTakes) {
  Add(Spec(4), 2);
  Add(Spec(4, kResumed));
  const std::string id = Add(Spec(4));
  ASSERT_TRUE(
      store_->Create({.text = "t", .resolved = Spec(4), .owner = "ann"}).ok());
  const auto lengths = ReadMeasuredWork(*store_);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  ASSERT_EQ(lengths->size(), 1u);
  const auto& [work, length] = lengths->front();
  EXPECT_EQ(work, WorkOf(Spec(4)));
  EXPECT_DOUBLE_EQ(length.step_device_seconds, 4);
  EXPECT_EQ(length.measured_in.id, id);
  EXPECT_EQ(length.measured_in.project, kDefaultProject);
}

TEST_F(StoredWorkTest, EventsSaySinceWhenAJobIsInItsState) {
  const std::string id = Add(Spec(4));
  const JobRecord job = *store_->Get(id);
  const auto since = StateSince(*store_, job);
  ASSERT_TRUE(since.ok()) << since.status();
  ASSERT_TRUE(since->has_value());
  EXPECT_LE(absl::AbsDuration(**since - *job.end_time), absl::Seconds(9));
  JobRecord never = job;
  never.state = JobState::kPaused;
  EXPECT_EQ(*StateSince(*store_, never), std::nullopt);
}

}  // namespace
}  // namespace roundhouse
