#include "server/jobs/job_log.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
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

}  // namespace
}  // namespace roundhouse
