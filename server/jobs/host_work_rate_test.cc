#include "server/jobs/host_work_rate.h"

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(HostWorkRateTest, IsThatOfAllLargeOperations) {
  HostWorkRate rate;
  EXPECT_FALSE(rate.bytes_per_ns().has_value());
  rate.Observe(HostWorkRate::kLeastBytes, HostWorkRate::kLeastBytes);
  EXPECT_DOUBLE_EQ(*rate.bytes_per_ns(), 1);
  rate.Observe(3 * HostWorkRate::kLeastBytes, HostWorkRate::kLeastBytes);
  EXPECT_DOUBLE_EQ(*rate.bytes_per_ns(), 2);
}

// A worker may report anything.
TEST(HostWorkRateTest, SmallOnesAndNoTimeSayNothing) {
  HostWorkRate rate;
  rate.Observe(HostWorkRate::kLeastBytes, 0);
  rate.Observe(HostWorkRate::kLeastBytes, -7);
  rate.Observe(HostWorkRate::kLeastBytes - 1, 100);
  rate.Observe(-1, 100);
  EXPECT_FALSE(rate.bytes_per_ns().has_value());
}

}  // namespace
}  // namespace roundhouse
