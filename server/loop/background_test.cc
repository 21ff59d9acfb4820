#include "server/loop/background.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

class BackgroundTest : public testing::Test {
 protected:
  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
};

TEST_F(BackgroundTest, WorkRunsBesideTheLoopAndWhatFollowsOnIt) {
  Background background(*loop_);
  const std::thread::id loop = std::this_thread::get_id();
  std::thread::id worked, followed;
  background.Run<absl::StatusOr<int>>(
      [&worked]() -> absl::StatusOr<int> {
        worked = std::this_thread::get_id();
        return 7;
      },
      [&](absl::StatusOr<int> answer) {
        EXPECT_EQ(*answer, 7);
        followed = std::this_thread::get_id();
        loop_->Quit();
      });
  EXPECT_EQ(followed, std::thread::id()) << "called by Run itself";
  loop_->Run();
  EXPECT_NE(worked, loop);
  EXPECT_EQ(followed, loop);
}

TEST_F(BackgroundTest, ItsPiecesComeOneAfterTheOtherInTheirOrder) {
  constexpr int kPieces = 200;
  Background background(*loop_);
  std::vector<int> worked, followed;  // one thread has it at a time
  for (int i = 0; i < kPieces; ++i) {
    background.Run<absl::Status>(
        [&worked, i] {
          worked.push_back(i);
          return absl::OkStatus();
        },
        [&, i](absl::Status) {
          followed.push_back(i);
          if (i == kPieces - 1) loop_->Quit();
        });
  }
  loop_->Run();
  std::vector<int> all;
  for (int i = 0; i < kPieces; ++i) all.push_back(i);
  EXPECT_EQ(worked, all);
  EXPECT_EQ(followed, all);
}

TEST_F(BackgroundTest, NothingFollowsOnceItIsGone) {
  auto background = std::make_unique<Background>(*loop_);
  auto worked = std::make_shared<bool>(false);
  background->Run<absl::Status>(
      [worked] {
        *worked = true;
        return absl::OkStatus();
      },
      [](absl::Status) { ADD_FAILURE() << "it is gone"; });
  background.reset();
  loop_->Quit();
  loop_->Run();
  EXPECT_TRUE(*worked);
}

// Whoever waits for the answer in another thread must get one.
TEST_F(BackgroundTest, WorkThatComesWithTheLoopsEndIsAnswered) {
  Background background(*loop_);
  absl::Status answer;
  loop_->After(absl::ZeroDuration(), [&] {
    loop_->Quit();
    ASSERT_TRUE(loop_
                    ->Post([&] {
                      loop_->StopBeside();
                      background.Run<absl::Status>(
                          [] { return absl::OkStatus(); },
                          [&](absl::Status status) { answer = status; });
                    })
                    .ok());
  });
  loop_->Run();
  EXPECT_TRUE(absl::IsUnavailable(answer)) << answer;
}

TEST_F(BackgroundTest, AnswersComeHoweverMuchIsPosted) {
  Background background(*loop_);
  absl::Notification posted;
  bool answered = false;
  background.Run<absl::Status>(
      [&posted] {
        posted.WaitForNotification();
        return absl::OkStatus();
      },
      [&](absl::Status) {
        answered = true;
        loop_->Quit();
      });
  while (loop_->Post([] {}).ok()) {
  }
  posted.Notify();
  // Only now is there room again.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  loop_->Run();
  EXPECT_TRUE(answered);
}

TEST_F(BackgroundTest, TooMuchIsUnavailableAndLosesNothingElse) {
  Background background(*loop_);
  int done = 0, refused = 0;
  const int pieces = static_cast<int>(kMaxBackgroundPieces) + 2;
  std::mutex gate;
  gate.lock();
  for (int i = 0; i < pieces; ++i) {
    background.Run<absl::Status>(
        [&gate] {
          const std::lock_guard<std::mutex> wait(gate);
          return absl::OkStatus();
        },
        [&](absl::Status status) {
          (status.ok() ? done : refused) += 1;
          EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
          if (done + refused == pieces) loop_->Quit();
        });
  }
  gate.unlock();
  loop_->Run();
  // The first may have been taken up before the last came, or not.
  EXPECT_GE(refused, 1);
  EXPECT_LE(refused, 2);
}

TEST_F(BackgroundTest, WhatComesAfterTheLoopHasQuitIsRefused) {
  loop_->Quit();
  loop_->Run();
  EXPECT_FALSE(loop_->RunBeside([] {}));
}

}  // namespace
}  // namespace roundhouse
