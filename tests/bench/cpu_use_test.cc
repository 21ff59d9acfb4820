#include "tests/bench/cpu_use.h"

#include <unistd.h>

#include "gtest/gtest.h"

namespace roundhouse::bench {
namespace {

TEST(CpuUseTest, SharesOfTheTimeBetweenTwoReadings) {
  const DaemonUse before = {{"daemon", {{1, {5, 0}}}},
                            {"device 0", {{10, {9, 1}}, {11, {1, 0}}}},
                            {"host", {{20, {0, 0}}}}};
  // Thread 11 is the busiest in between, although 10 has used more in all.
  const DaemonUse after = {{"daemon", {{1, {6, 0}}}},
                           {"device 0", {{10, {10, 1}}, {11, {7, 2}}}},
                           {"host", {{20, {2, 0}}}}};
  const UseShares shares = SharesBetween(before, after);
  EXPECT_DOUBLE_EQ(shares.cpu_seconds, 10);
  EXPECT_DOUBLE_EQ(shares.compute, 0.6);
  EXPECT_DOUBLE_EQ(shares.device, 0.1);
  EXPECT_DOUBLE_EQ(shares.host, 0.2);
  EXPECT_DOUBLE_EQ(shares.daemon, 0.1);
  EXPECT_DOUBLE_EQ(shares.compute_ready, 0.25);
}

TEST(CpuUseTest, ReadsThisProcessAsADaemonWithoutWorkers) {
  const auto use = ReadDaemonUse(getpid());
  ASSERT_TRUE(use.ok()) << use.status();
  ASSERT_EQ(use->size(), 1u);
  EXPECT_EQ(use->at("daemon").count(getpid()), 1u);
}

TEST(CpuUseTest, AProcessThatEndedIsNotFound) {
  EXPECT_EQ(ReadDaemonUse(-1).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace roundhouse::bench
