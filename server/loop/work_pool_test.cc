#include "server/loop/work_pool.h"

#include <atomic>
#include <future>

#include "gtest/gtest.h"

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

}  // namespace
}  // namespace roundhouse
