#include "server/admission/job_checker.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/admission/admission_test_fixture.h"
#include "server/admission/dry_run.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

using JobCheckerTest = AdmissionTest;

TEST_F(JobCheckerTest, AnAdmittedJobHasAllThatCheckingFound) {
  const auto job = Check(kJob);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->model.config.vocab_size, 211);
  EXPECT_EQ(job->model.path, root_ + "/data/m");
  ASSERT_TRUE(job->host.ok()) << job->host.status();
  EXPECT_GT(job->host->total(), 0u);
  EXPECT_EQ(job->needs.host_limit_bytes, int64_t{1} << 30);
  EXPECT_GT(job->needs.disk_bytes, 0);
  EXPECT_EQ(job->start_step(), 0);
  EXPECT_FALSE(job->spec.spec().template_date.empty());
  // config.json, tokenizer.json and the data.
  EXPECT_EQ(job->files.size(), 3u);
}

TEST_F(JobCheckerTest, WhatTheFileNamesIsSaidWithItsLine) {
  const auto job =
      Check(absl::StrCat("# a job\n", "model_name_or_path: nowhere\n",
                         "dataset: d.jsonl\nmax_steps: 1\n"));
  ASSERT_FALSE(job.ok());
  EXPECT_TRUE(
      absl::StrContains(std::string(job.status().message()), "job.yaml:2"))
      << job.status();
}

TEST_F(JobCheckerTest, AResultIsNotNamedLikeAJobOrWhatIsThere) {
  const JobChecker& checker = admission_->checker();
  EXPECT_TRUE(checker.CheckOutputName("new").ok());
  EXPECT_EQ(ErrorField(checker.CheckOutputName("job-7")), "output_name");
  std::filesystem::create_directories(root_ + "/state/outputs/old");
  EXPECT_EQ(ErrorField(checker.CheckOutputName("old")), "output_name");
}

TEST_F(JobCheckerTest, AJobOfTheStoreIsTakenUpAsItWasAdmitted) {
  const AdmittedJob job = *Check(kJob);
  const auto taken = admission_->checker().TakeUp(Store(job));
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->spec.ToJson(), job.spec.ToJson());
  EXPECT_EQ(taken->model.files, job.model.files);
  EXPECT_EQ(taken->host->total(), job.host->total());
}

TEST_F(JobCheckerTest, WhatChangedCameOrWentIsNotStillSo) {
  const JobChecker& checker = admission_->checker();
  const AdmittedJob job = *Check(kJob);
  EXPECT_TRUE(checker.IsStillSo(job));
  WriteTestFile(root_ + "/data/m/tokenizer.json", "{\"a\": 1}");
  EXPECT_FALSE(checker.IsStillSo(job)) << "changed";
  const AdmittedJob then = *Check(kJob);
  WriteTestFile(root_ + "/data/m/tokenizer_config.json", "{}");
  EXPECT_FALSE(checker.IsStillSo(then)) << "came";
  std::filesystem::remove(root_ + "/data/m/tokenizer_config.json");
  EXPECT_TRUE(checker.IsStillSo(then));
  std::filesystem::remove(root_ + "/data/m/config.json");
  EXPECT_FALSE(checker.IsStillSo(then)) << "went";
}

TEST_F(JobCheckerTest, AKeptJobIsNotReadAgain) {
  AdmittedJobs& admitted = admission_->admitted();
  const auto job = std::make_shared<const AdmittedJob>(*Check(kJob));
  const JobRecord record = Store(*job);
  EXPECT_EQ(admitted.Kept(record.id), nullptr);
  admitted.Keep(record.id, job);
  EXPECT_EQ(*admitted.Get(record), job);
  EXPECT_EQ(*admitted.GetAsIs(record), job);
  admitted.Forget(record.id);
  EXPECT_EQ(admitted.Kept(record.id), nullptr);
  const auto again = admitted.Get(record);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_NE(*again, job);
  EXPECT_EQ(admitted.Kept(record.id), *again) << "and then it is kept";
}

TEST_F(JobCheckerTest, AKeptJobWhoseFilesChangedIsReadAgain) {
  AdmittedJobs& admitted = admission_->admitted();
  const auto job = std::make_shared<const AdmittedJob>(*Check(kJob));
  const JobRecord record = Store(*job);
  admitted.Keep(record.id, job);
  WriteTestFile(root_ + "/data/m/tokenizer.json", "{\"a\": 1}");
  const auto again = admitted.GetAsIs(record);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_NE(*again, job);
  std::filesystem::remove(root_ + "/data/m/tokenizer.json");
  EXPECT_FALSE(admitted.GetAsIs(record).ok());
}

TEST_F(JobCheckerTest, ADryRunSaysWhatTheJobWouldNeed) {
  const AdmittedJob job = *Check(kJob);
  const auto dry =
      DryRunOf(job, kJob, *store_, admission_->paths(), 2, kAnyone);
  ASSERT_TRUE(dry.ok()) << dry.status();
  EXPECT_EQ(dry->needs.steps, 10);
  EXPECT_GT(dry->needs.parameters, 0);
  EXPECT_EQ(dry->first_sequence.samples, 1);
  EXPECT_FALSE(dry->needs.step_seconds.has_value()) << "no job ran yet";
}

}  // namespace
}  // namespace roundhouse
