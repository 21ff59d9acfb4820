#include "server/loop/work_pool.h"

#include <atomic>
#include <future>
#include <vector>

#include "gtest/gtest.h"
#include "server/loop/manual_threads.h"

namespace roundhouse {
namespace {

TEST(WorkPoolTest, RunsEverythingBeforeItEnds) {
  std::atomic<int> ran = 0;
  {
    WorkPool pool(3, 100);
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(pool.TryRun([&] { ++ran; }));
    }
  }
  EXPECT_EQ(ran, 50);
}

TEST(WorkPoolTest, AFullQueueRefuses) {
  std::promise<void> started;
  std::promise<void> go;
  std::atomic<int> ran = 0;
  {
    WorkPool pool(1, 2);
    ASSERT_TRUE(pool.TryRun([&] {
      started.set_value();
      go.get_future().wait();
    }));
    started.get_future().wait();
    EXPECT_TRUE(pool.TryRun([&] { ++ran; }));
    EXPECT_TRUE(pool.TryRun([&] { ++ran; }));
    EXPECT_FALSE(pool.TryRun([&] { ++ran; }));
    go.set_value();
  }
  EXPECT_EQ(ran, 2);
}

TEST(WorkPoolTest, ManualThreadsDoWhatWaitsInTheOrderGiven) {
  ManualThreads threads;
  WorkPool first(4);
  WorkPool second(1, 2);
  std::vector<int> order;
  EXPECT_FALSE(threads.Run());
  EXPECT_TRUE(second.TryRun([&] {
    order.push_back(1);
    EXPECT_TRUE(first.TryRun([&] { order.push_back(3); }));
  }));
  EXPECT_TRUE(first.TryRun([&] { order.push_back(2); }));
  EXPECT_TRUE(order.empty());
  EXPECT_TRUE(threads.Run());
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(second.TryRun([] {}));
  EXPECT_FALSE(second.TryRun([] {}));
}

TEST(WorkPoolTest, WhatManualThreadsHaveNotDoneThePoolsEndDoes) {
  ManualThreads threads;
  int ran = 0;
  {
    WorkPool pool(1);
    EXPECT_TRUE(pool.TryRun([&] {
      ++ran;
      EXPECT_FALSE(pool.TryRun([] {}));
    }));
    EXPECT_TRUE(pool.TryRun([&] { ++ran; }));
  }
  EXPECT_EQ(ran, 2);
  EXPECT_FALSE(threads.Run());
  {
    WorkPool pool(1);
    EXPECT_TRUE(pool.TryRun([&] { ++ran; }));
    threads.Abandon();
  }
  EXPECT_EQ(ran, 2);
}

}  // namespace
}  // namespace roundhouse
