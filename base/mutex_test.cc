#include "base/mutex.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// Constant-initialised, so no initialisation order is wrong.
constinit Mutex global_mutex;

TEST(MutexTest, OneThreadAtATime) {
  constexpr int kThreads = 4;
  constexpr int kAdditions = 10'000;
  struct {
    Mutex mutex;
    int count ABSL_GUARDED_BY(mutex) = 0;
  } counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&counter] {
      for (int n = 0; n < kAdditions; ++n) {
        MutexLock lock(counter.mutex);
        ++counter.count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(counter.mutex);
  EXPECT_EQ(counter.count, kThreads * kAdditions);
}

TEST(MutexTest, ANamespacesMutexNeedsNoInitialisation) {
  MutexLock lock(global_mutex);
}

// Two threads take turns: each waits until the other has had its own.
TEST(CondVarTest, AWaitEndsWithANotificationAndHoldsTheMutex) {
  constexpr int kTurns = 1000;
  struct {
    Mutex mutex;
    CondVar changed;
    int turn ABSL_GUARDED_BY(mutex) = 0;
  } game;
  const auto play = [&game](int player) {
    for (int n = 0; n < kTurns; ++n) {
      MutexLock lock(game.mutex);
      while (game.turn % 2 != player) game.changed.Wait(game.mutex);
      ++game.turn;
      game.changed.NotifyOne();
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  MutexLock lock(game.mutex);
  EXPECT_EQ(game.turn, 2 * kTurns);
}

// The test does not end if one waits for it.
TEST(CondVarTest, AWaitWithALimitEndsWithoutANotification) {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  for (const absl::Duration limit :
       {absl::Milliseconds(1), absl::ZeroDuration(), -absl::Hours(1)}) {
    const CondVar::Deadline deadline = CondVar::DeadlineIn(limit);
    while (never.WaitUntil(mutex, deadline)) {
    }
    EXPECT_GE(std::chrono::steady_clock::now(), deadline);
  }
}

TEST(CondVarTest, NoDeadlineOverflows) {
  EXPECT_GT(CondVar::DeadlineIn(absl::InfiniteDuration()),
            CondVar::DeadlineIn(CondVar::kLongestWait / 2));
}

TEST(CondVarTest, ANotificationEndsAWaitWithALimit) {
  struct {
    Mutex mutex;
    CondVar changed;
    bool waiting ABSL_GUARDED_BY(mutex) = false;
    bool set ABSL_GUARDED_BY(mutex) = false;
  } flag;
  std::thread waiter([&flag] {
    MutexLock lock(flag.mutex);
    flag.waiting = true;
    flag.changed.NotifyAll();
    const auto deadline = CondVar::DeadlineIn(absl::InfiniteDuration());
    while (!flag.set && flag.changed.WaitUntil(flag.mutex, deadline)) {
    }
    EXPECT_TRUE(flag.set);
  });
  {
    MutexLock lock(flag.mutex);
    while (!flag.waiting) flag.changed.Wait(flag.mutex);
    flag.set = true;
  }
  flag.changed.NotifyAll();
  waiter.join();
}

}  // namespace
}  // namespace roundhouse
