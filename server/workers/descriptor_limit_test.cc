#include "server/workers/descriptor_limit.h"

#include <sys/resource.h>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(DescriptorLimitTest, IsRaisedToTheHardLimitAndNeverLowered) {
  struct rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const struct rlimit few = {64, 200};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(RaiseDescriptorLimit(), 200u);
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, 200u);
  EXPECT_EQ(limit.rlim_max, 200u);
  EXPECT_EQ(RaiseDescriptorLimit(), 200u);
}

}  // namespace
}  // namespace roundhouse
