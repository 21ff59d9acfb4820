#include "server/run/background_line.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

class BackgroundLineTest : public testing::Test {
 protected:
  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  std::vector<std::string> seen_;
};

TEST_F(BackgroundLineTest, WorkIsDoneInOrderAndAnsweredOnTheLoop) {
  const std::thread::id here = std::this_thread::get_id();
  std::vector<int> done_off_the_loop;  // written by one thread, read at the end
  BackgroundLine line(*loop_, [this] {
    seen_.push_back("after");
    if (seen_.size() == 6) loop_->Quit();
  });
  for (int i = 0; i < 3; ++i) {
    line.Run(
        [&, i] {
          EXPECT_NE(std::this_thread::get_id(), here);
          done_off_the_loop.push_back(i);
          return i == 1 ? absl::DataLossError("torn") : absl::OkStatus();
        },
        [&, i](const absl::Status& status) {
          EXPECT_EQ(std::this_thread::get_id(), here);
          EXPECT_EQ(line.busy(), i < 2);
          seen_.push_back(absl::StrCat(i, ":", status.message()));
        });
  }
  EXPECT_TRUE(line.busy());
  loop_->Run();
  EXPECT_FALSE(line.busy());
  EXPECT_EQ(done_off_the_loop, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(seen_, (std::vector<std::string>{"0:", "after", "1:torn", "after",
                                             "2:", "after"}));
}

TEST_F(BackgroundLineTest, WhatIsAnsweredMayAskForMore) {
  BackgroundLine line(*loop_, [] {});
  line.Run([] { return absl::OkStatus(); },
           [&](const absl::Status&) {
             line.Run([] { return absl::OkStatus(); },
                      [&](const absl::Status&) { loop_->Quit(); });
             EXPECT_TRUE(line.busy());
           });
  loop_->Run();
  EXPECT_FALSE(line.busy());
}

TEST_F(BackgroundLineTest, MoreWorkThanAJobEverHasIsAMistake) {
  EXPECT_DEATH(
      {
        BackgroundLine line(*loop_, [] {});
        for (size_t i = 0; i < 2 * kMaxBackgroundWork; ++i) {
          line.Run(
              [] {
                std::this_thread::sleep_for(std::chrono::hours(1));
                return absl::OkStatus();
              },
              [](const absl::Status&) {});
        }
      },
      "more background work");
}

}  // namespace
}  // namespace roundhouse
