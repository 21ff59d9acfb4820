#include "server/job/job_log.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/testing/full_disk.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

class JobLogTest : public testing::Test {
 protected:
  JobLogTest() { std::filesystem::remove_all(root_); }
  ~JobLogTest() override { std::filesystem::remove_all(root_); }

  const std::string root_ = testing::TempDir() + "/job_log_test";
  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  JobLog log_{*loop_};
};

TEST_F(JobLogTest, LinesAreThereInTheirOrderWhenWhatFollowsRuns) {
  log_.Say(root_, "one");
  log_.Say(root_, "two", [this] { loop_->Quit(); });
  loop_->Run();
  const std::string text = ReadTestFile(root_ + "/log");
  EXPECT_NE(text.find(" two\n"), std::string::npos) << text;
  EXPECT_LT(text.find(" one\n"), text.find(" two\n")) << text;
}

TEST_F(JobLogTest, AJobThatIsToRunFindsAllLinesSaidBefore) {
  log_.Say(root_, "before");
  log_.Open(root_, [this](JobLog::Opened files) {
    EXPECT_TRUE(files.ok()) << files.status();
    if (files.ok()) (*files)->Log("its own");
    loop_->Quit();
  });
  loop_->Run();
  const std::string text = ReadTestFile(root_ + "/log");
  EXPECT_NE(text.find(" its own\n"), std::string::npos) << text;
  EXPECT_LT(text.find(" before\n"), text.find(" its own\n")) << text;
}

TEST_F(JobLogTest, WhatFollowsComesThoughTheLogCannotBeWritten) {
  WriteTestFile(root_, "a file where the directory should be");
  bool followed = false;
  log_.Say(root_, "lost", [&] {
    followed = true;
    loop_->Quit();
  });
  loop_->Run();
  EXPECT_TRUE(followed);
}

TEST_F(JobLogTest, WhatAFullDiskDoesNotTakeIsWrittenOnceThereIsRoom) {
  std::optional<FullDisk> full(1);
  log_.Say(root_, "kept", [&] {
    full.reset();
    log_.TryAgain();
    // Behind what TryAgain does.
    log_.Say(root_ + "/other", "", [this] { loop_->Quit(); });
  });
  loop_->Run();
  const std::string text = ReadTestFile(root_ + "/log");
  EXPECT_TRUE(absl::EndsWith(text, " kept\n")) << text;
}

TEST_F(JobLogTest, AJobThatIsToRunGetsWhatAFullDiskDidNotTake) {
  std::optional<FullDisk> full(1);
  log_.Say(root_, "kept");
  log_.Open(root_, [&](JobLog::Opened files) {
    full.reset();
    EXPECT_TRUE(files.ok()) << files.status();
    if (files.ok()) (*files)->Log("its own");
    loop_->Quit();
  });
  loop_->Run();
  const std::string text = ReadTestFile(root_ + "/log");
  EXPECT_NE(text.find(" its own\n"), std::string::npos) << text;
  EXPECT_LT(text.find(" kept\n"), text.find(" its own\n")) << text;
}

TEST_F(JobLogTest, OnlySoManyLogsAreKept) {
  std::optional<FullDisk> full(1);
  for (size_t i = 0; i <= kMaxUnwrittenLogs; ++i) {
    log_.Say(absl::StrCat(root_, "/", i), "kept");
  }
  log_.Say(root_, "", [&] {
    full.reset();
    log_.TryAgain();
    log_.Say(root_ + "/other", "", [this] { loop_->Quit(); });
  });
  loop_->Run();
  for (size_t i = 0; i <= kMaxUnwrittenLogs; ++i) {
    const std::string text = ReadTestFile(absl::StrCat(root_, "/", i, "/log"));
    EXPECT_EQ(absl::EndsWith(text, " kept\n"), i < kMaxUnwrittenLogs) << text;
  }
}

}  // namespace
}  // namespace roundhouse
