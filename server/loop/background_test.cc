#include "server/loop/background.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
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

TEST_F(BackgroundTest, AnOwnThreadWorksInOrderAndTellsAfterEach) {
  const std::thread::id here = std::this_thread::get_id();
  std::vector<std::string> seen;
  std::vector<int> done;  // written by one thread, read at the end
  Background background(*loop_, Background::Thread::kOwn, [&] {
    seen.push_back("after");
    if (seen.size() == 6) loop_->Quit();
  });
  for (int i = 0; i < 3; ++i) {
    background.Run(
        [&, i] {
          EXPECT_NE(std::this_thread::get_id(), here);
          done.push_back(i);
          return i == 1 ? absl::DataLossError("torn") : absl::OkStatus();
        },
        [&, i](const absl::Status& status) {
          EXPECT_EQ(std::this_thread::get_id(), here);
          EXPECT_EQ(background.busy(), i < 2);
          seen.push_back(absl::StrCat(i, ":", status.message()));
        });
  }
  EXPECT_TRUE(background.busy());
  loop_->Run();
  EXPECT_FALSE(background.busy());
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(seen, (std::vector<std::string>{"0:", "after", "1:torn", "after",
                                            "2:", "after"}));
}

// Work of an own thread may use what its owner has.
TEST_F(BackgroundTest, AnOwnThreadsWorkIsOverWhenItIsGone) {
  struct Owner {
    explicit Owner(EventLoop& loop)
        : background(loop, Background::Thread::kOwn) {}
    std::vector<int> worked;
    Background background;
  };
  auto owner = std::make_unique<Owner>(*loop_);
  std::vector<int>* worked = &owner->worked;
  absl::Notification begun, let_go;
  auto done = std::make_shared<int>(0);
  for (int i = 0; i < 3; ++i) {
    owner->background.Run(
        [&, worked, done, i] {
          if (i == 0) begun.Notify();
          let_go.WaitForNotification();
          worked->push_back(i);
          *done = static_cast<int>(worked->size());
          return absl::OkStatus();
        },
        [](const absl::Status&) { ADD_FAILURE() << "its owner is gone"; });
  }
  begun.WaitForNotification();
  std::thread releaser([&] { let_go.Notify(); });
  owner.reset();
  EXPECT_EQ(*done, 3);
  releaser.join();
  loop_->Quit();
  loop_->Run();
}

TEST_F(BackgroundTest, AThreadThatIsHeldHoldsNoOther) {
  Background shared(*loop_);
  Background own(*loop_, Background::Thread::kOwn);
  absl::Notification let_go;
  own.Run(
      [&] {
        let_go.WaitForNotification();
        return absl::OkStatus();
      },
      [&](const absl::Status&) { loop_->Quit(); });
  shared.Run([] { return absl::OkStatus(); },
             [&](const absl::Status&) { let_go.Notify(); });
  loop_->Run();
}

TEST_F(BackgroundTest, WhatFollowsMayAskForMoreOrEndIt) {
  for (const auto thread :
       {Background::Thread::kShared, Background::Thread::kOwn}) {
    const std::unique_ptr<EventLoop> loop = *EventLoop::Create();
    int after = 0;
    auto background =
        std::make_unique<Background>(*loop, thread, [&] { ++after; });
    background->Run([] { return absl::OkStatus(); },
                    [&](const absl::Status&) {
                      background->Run([] { return absl::OkStatus(); },
                                      [&](const absl::Status&) {
                                        background.reset();
                                        loop->Quit();
                                      });
                      EXPECT_TRUE(background->busy());
                    });
    loop->Run();
    EXPECT_EQ(after, 1) << "it was gone the second time";
  }
}

TEST_F(BackgroundTest, TooMuchForAnOwnThreadIsUnavailable) {
  Background background(*loop_, Background::Thread::kOwn);
  absl::Notification let_go;
  const int pieces = static_cast<int>(kMaxBackgroundPieces) + 2;
  int done = 0, refused = 0;
  for (int i = 0; i < pieces; ++i) {
    background.Run(
        [&] {
          let_go.WaitForNotification();
          return absl::OkStatus();
        },
        [&](const absl::Status& status) {
          (status.ok() ? done : refused) += 1;
          EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
          if (done + refused == pieces) loop_->Quit();
        });
  }
  let_go.Notify();
  loop_->Run();
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
