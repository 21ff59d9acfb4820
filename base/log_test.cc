#include "base/log.h"

#include "base/status.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(LogTest, CheckAbortsAndNamesTheCondition) {
  const int workers = 3;
  ROUNDHOUSE_CHECK(workers == 3) << "never printed";
  EXPECT_DEATH(ROUNDHOUSE_CHECK(workers == 4) << "have " << workers,
               "check failed: workers == 4 have 3");
}

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return value / 2;
}

absl::StatusOr<int> Quarter(int value) {
  ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

TEST(StatusTest, MacrosPropagate) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(7).status().message(), "odd");
  EXPECT_EQ(Quarter(6).status().message(), "odd");
}

}  // namespace
}  // namespace roundhouse
