#include "server/loop/event_loop.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/manual_clock.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(EventLoopTest, PostedClosuresRunInOrderOnTheLoop) {
  auto loop = *EventLoop::Create();
  std::vector<int> order;
  std::thread poster([&] {
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(loop->Post([&order, i] { order.push_back(i); }).ok());
    }
    ASSERT_TRUE(loop->Post([&] { loop->Quit(); }).ok());
  });
  loop->Run();
  poster.join();
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[i], i);
}

TEST(EventLoopTest, PostAfterTheEndIsRefused) {
  auto loop = *EventLoop::Create();
  loop->Quit();
  loop->Run();
  EXPECT_EQ(loop->Post([] {}).code(), absl::StatusCode::kUnavailable);
}

TEST(EventLoopTest, TooManyPostsAreRefused) {
  auto loop = *EventLoop::Create();
  for (size_t i = 0; i < kMaxPostedClosures; ++i) {
    ASSERT_TRUE(loop->Post([] {}).ok());
  }
  EXPECT_EQ(loop->Post([] {}).code(), absl::StatusCode::kResourceExhausted);
}

TEST(EventLoopTest, TimersFireInOrderOfTimeAndCanBeCancelled) {
  ManualClock clock;
  auto loop = *EventLoop::Create(clock);
  std::vector<int> order;
  loop->After(absl::Milliseconds(20) + absl::Nanoseconds(1),
              [&] { order.push_back(3); });
  loop->After(absl::Milliseconds(5), [&] { order.push_back(1); });
  loop->After(absl::Milliseconds(20), [&] {
    order.push_back(2);
    loop->Quit();
  });
  const auto cancelled =
      loop->After(absl::Milliseconds(1), [&] { order.push_back(0); });
  loop->CancelTimer(cancelled);
  clock.Advance(absl::Milliseconds(20));
  loop->Run();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

// What waits for a quiet moment runs after all that is ready, but not never.
TEST(EventLoopTest, IdleClosuresComeAfterWhatIsReady) {
  auto loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  std::vector<std::string> ran;
  int posts = 3;
  std::function<void()> post = [&] {
    ran.push_back("posted");
    if (--posts == 0) return;
    ASSERT_TRUE((*loop)->Post(post).ok());
  };
  (*loop)->WhenIdle([&] {
    ran.push_back("idle");
    (*loop)->Quit();
    (*loop)->WhenIdle([&] { ran.push_back("last"); });
  });
  ASSERT_TRUE((*loop)->Post(post).ok());
  (*loop)->Run();
  EXPECT_EQ(ran, (std::vector<std::string>{"posted", "posted", "posted", "idle",
                                           "last"}));
}

TEST(EventLoopTest, IdleClosuresDoNotWaitForEver) {
  auto loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  bool idle = false;
  std::function<void()> post = [&] {
    if (idle) return;
    ASSERT_TRUE((*loop)->Post(post).ok());  // never quiet
  };
  (*loop)->WhenIdle([&] {
    idle = true;
    (*loop)->Quit();
  });
  ASSERT_TRUE((*loop)->Post(post).ok());
  (*loop)->Run();
  EXPECT_TRUE(idle);
}

TEST(EventLoopTest, ATurnIsWhatWasReadyAtOnceWithoutTheWaitForIt) {
  ManualClock clock;
  auto loop = *EventLoop::Create(clock);
  absl::Duration sum;
  loop->TellTurns([&](absl::Duration time) { sum += time; });
  static constexpr absl::Duration kWork = absl::Milliseconds(3);
  constexpr absl::Duration kWait = absl::Hours(1);
  loop->After(kWait, [&] { clock.Advance(kWork); });
  loop->After(kWait, [&] {
    clock.Advance(kWork);
    loop->Quit();
  });
  // Whatever the loop is at, nothing is ready.
  std::thread time([&] {
    clock.Advance(kWait);
    loop->PostAnswer([] {});
  });
  loop->Run();
  time.join();
  EXPECT_EQ(sum, 2 * kWork);
}

TEST(EventLoopTest, TurnsAreTakenByWhoMovesTheClock) {
  ManualClock clock;
  auto loop = *EventLoop::Create(clock);
  std::vector<int> order;
  loop->After(absl::Hours(3), [&] {
    order.push_back(2);
    loop->WhenIdle([&] { order.push_back(3); });
  });
  ASSERT_TRUE(loop->Post([&] { order.push_back(1); }).ok());
  while (loop->RunTurn(absl::ZeroDuration())) {
  }
  EXPECT_EQ(order, (std::vector<int>{1}));
  EXPECT_EQ(loop->next_timer_ns(),
            clock.MonotonicNs() + absl::ToInt64Nanoseconds(absl::Hours(3)));
  clock.Advance(absl::Hours(3));
  while (loop->RunTurn(absl::ZeroDuration())) {
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_FALSE(loop->next_timer_ns().has_value());
}

TEST(EventLoopTest, AnUnwatchedDescriptorIsSilentAtOnce) {
  auto loop = *EventLoop::Create();
  int first[2], second[2];
  ASSERT_EQ(pipe(first), 0);
  ASSERT_EQ(pipe(second), 0);
  ASSERT_EQ(write(first[1], "x", 1), 1);
  ASSERT_EQ(write(second[1], "x", 1), 1);
  int calls = 0;
  // Both are ready in the same batch; whoever comes first silences the other.
  loop->Watch(first[0], EPOLLIN, [&](uint32_t) {
    ++calls;
    loop->Unwatch(first[0]);
    loop->Unwatch(second[0]);
  });
  loop->Watch(second[0], EPOLLIN, [&](uint32_t) {
    ++calls;
    loop->Unwatch(first[0]);
    loop->Unwatch(second[0]);
  });
  loop->WhenIdle([&] { loop->Quit(); });
  loop->Run();
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace roundhouse
