#include "base/log.h"

#include <string>

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

TEST(LogTest, ANameCannotForgeALine) {
  testing::internal::CaptureStderr();
  RH_LOG(kInfo) << "reading \xc3\xa4\x1b[2J\nI 2026 roundhoused all well";
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(
      line.find(" reading \xc3\xa4\\x1b[2J\\nI 2026 roundhoused all well"),
      std::string::npos)
      << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
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
