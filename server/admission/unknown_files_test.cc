#include "server/admission/unknown_files.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/weights/output_owner.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class UnknownFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rh_unknown.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    auto store = JobStore::Open({.path = dir_ / "jobs.db"});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    for (const std::string output : {"", "named"}) {
      const auto job = store_->Create(
          {.text = "t", .resolved = "{}", .output_name = output});
      ASSERT_TRUE(job.ok()) << job.status();
      fs::create_directories(dir_ / "jobs" / job->uid);
      MakeOutput(output.empty() ? job->id : output, job->uid);
    }
  }
  void TearDown() override {
    store_.reset();
    fs::remove_all(dir_);
  }
  void MakeOutput(const std::string& name, const std::string& uid) {
    fs::create_directories(dir_ / "outputs" / name);
    if (uid.empty()) return;
    std::ofstream(dir_ / "outputs" / name / kOutputOwnerName)
        << OutputOwnerJson("job-9", uid);
  }
  UnknownFiles Find() {
    const auto unknown = FindUnknownFiles(dir_, *store_);
    EXPECT_TRUE(unknown.ok()) << unknown.status();
    return unknown.value_or(UnknownFiles());
  }

  fs::path dir_;
  std::unique_ptr<JobStore> store_;
};

TEST_F(UnknownFilesTest, NothingIsUnknownWhereTheStoreIsWhole) {
  MakeOutput("an-export", "");
  std::ofstream(dir_ / "outputs" / "job-77") << "no folder";
  const UnknownFiles unknown = Find();
  EXPECT_EQ(Describe(unknown), "");
  EXPECT_EQ(unknown.last_job, 0);
}

// Its project keeps it, and no later job gets its name.
TEST_F(UnknownFilesTest, AResultThatStayedWhenItsJobWasDeletedTakesItsNumber) {
  MakeOutput("job-5", "");
  std::ofstream(dir_ / "outputs" / "job-5" / kOutputOwnerName)
      << KeptOutputJson("job-5", "0123", "vision");
  const UnknownFiles unknown = Find();
  EXPECT_EQ(Describe(unknown), "");
  EXPECT_EQ(unknown.last_job, 5);
}

TEST_F(UnknownFilesTest, NothingIsUnknownWhereNothingIsThere) {
  fs::remove_all(dir_ / "jobs");
  fs::remove_all(dir_ / "outputs");
  EXPECT_EQ(Describe(Find()), "");
}

TEST_F(UnknownFilesTest, WhatALostStoreLeavesIsNamedAndItsNumbersAreTaken) {
  fs::create_directories(dir_ / "jobs" / "0123");
  MakeOutput("job-12", "");
  MakeOutput("job-3", "0123");
  MakeOutput("other", "0123");
  MakeOutput("job-9223372036854775807", "");  // no store gave that
  const UnknownFiles unknown = Find();
  EXPECT_EQ(unknown.last_job, 12);
  EXPECT_EQ(Describe(unknown),
            "the job store does not know 1 folders in jobs/: 0123 and 4 "
            "folders in outputs/: job-12, job-3, job-9223372036854775807, "
            "other; they are left as they are");
  ASSERT_TRUE(store_->SkipJobNumbers(unknown.last_job).ok());
  EXPECT_EQ(store_->Create({.text = "t", .resolved = "{}"})->id, "job-13");
}

TEST_F(UnknownFilesTest, ManyAreCounted) {
  for (int i = 10; i < 40; ++i) {
    fs::create_directories(dir_ / "jobs" / absl::StrCat(i));
  }
  EXPECT_EQ(Describe(Find()),
            "the job store does not know 30 folders in jobs/: 10, 11, 12, 13, "
            "14, 15, 16, 17, 18, 19 and 20 more; they are left as they are");
}

}  // namespace
}  // namespace roundhouse
