#include "server/removal/readings.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/manual_clock.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

class ReadingsTest : public testing::Test {
 protected:
  ManualClock clock_;
  Readings readings_{"/state", clock_};
};

TEST_F(ReadingsTest, WhatIsReadIsNotClosed) {
  auto reading =
      readings_.Begin({"/state/jobs/u/checkpoint-4"}, "an export of anna");
  ASSERT_TRUE(reading.ok());
  const auto refused = readings_.Close({"/state/jobs/u"});
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
  EXPECT_EQ(refused.status().message(),
            "jobs/u is read by an export of anna; try again when that is over");
  EXPECT_TRUE(readings_.Close({"/state/jobs/u/checkpoint-40"}).ok());
  EXPECT_TRUE(readings_.Close({"/state/jobs/uu"}).ok());
  const ReadingTicket copy = *reading;
  *reading = nullptr;
  EXPECT_FALSE(readings_.Close({"/state/jobs/u"}).ok());
}

TEST_F(ReadingsTest, WhoeverOnlyLooksClosesNothing) {
  EXPECT_TRUE(readings_.CheckUnread({"/state/jobs/u"}).ok());
  const auto reading = readings_.Begin({"/state/jobs/u"}, "otto");
  ASSERT_TRUE(reading.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(
      readings_.CheckUnread({"/state/jobs/u/checkpoint-4"})));
}

TEST_F(ReadingsTest, AReadingEndsWithItsTicket) {
  ASSERT_TRUE(readings_.Begin({"/state/outputs/x", "/data/y"}, "otto").ok());
  EXPECT_TRUE(readings_.Close({"/state/outputs/x"}).ok());
}

TEST_F(ReadingsTest, NobodyBeginsToReadWhatIsClosed) {
  {
    const auto closed = readings_.Close({"/state/jobs/u"});
    ASSERT_TRUE(closed.ok());
    EXPECT_TRUE(absl::IsNotFound(
        readings_.Begin({"/state/jobs/u/checkpoint-4"}, "x").status()));
    EXPECT_TRUE(absl::IsNotFound(readings_.Touch("/state/jobs/u", "x")));
    EXPECT_TRUE(absl::IsAborted(
        readings_.Close({"/state/jobs/u/checkpoint-4"}).status()));
    EXPECT_TRUE(readings_.Begin({"/state/outputs/x"}, "x").ok());
  }
  EXPECT_TRUE(readings_.Begin({"/state/jobs/u"}, "x").ok());
}

TEST_F(ReadingsTest, WhatIsReadPieceByPieceIsReadForAWhile) {
  ASSERT_TRUE(readings_.Touch("/state/outputs/x", "a download of anna").ok());
  clock_.Advance(kReadingLasts - absl::Seconds(1));
  EXPECT_FALSE(readings_.Close({"/state/outputs/x"}).ok());
  ASSERT_TRUE(readings_.Touch("/state/outputs/x", "a download of anna").ok());
  clock_.Advance(kReadingLasts - absl::Seconds(1));
  EXPECT_FALSE(readings_.Close({"/state/outputs/x"}).ok());
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(readings_.Close({"/state/outputs/x"}).ok());
}

TEST_F(ReadingsTest, WhatLiesElsewhereDoesNotMatter) {
  const auto reading = readings_.Begin({"/data/jobs/u", "/state"}, "x");
  ASSERT_TRUE(reading.ok());
  EXPECT_TRUE(readings_.Touch("/data/outputs/x", "x").ok());
  EXPECT_TRUE(readings_.Close({"/state/jobs/u", "/data/jobs/u"}).ok());
}

TEST_F(ReadingsTest, FewAreRememberedThatWereReadOnce) {
  for (size_t i = 0; i <= kMaxTouched; ++i) {
    ASSERT_TRUE(readings_.Touch(absl::StrCat("/state/outputs/", i), "x").ok());
    clock_.Advance(absl::Milliseconds(1));
  }
  EXPECT_TRUE(readings_.Close({"/state/outputs/0"}).ok());
  EXPECT_FALSE(readings_.Close({"/state/outputs/1"}).ok());
}

TEST(StatePathsTest, APathIsFoundHoweverTheDirectoryIsNamed) {
  const std::string root = testing::TempDir() + "/state_paths";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root + "/real");
  std::filesystem::create_directory_symlink("real", root + "/link");
  const StatePaths paths(root + "/link");
  for (const char* folder : {"/link", "/real"}) {
    EXPECT_EQ(paths.Below(absl::StrCat(root, folder, "/jobs/u/")), "jobs/u");
  }
  EXPECT_EQ(paths.Below(root + "/link/uploads/x"), "");
  EXPECT_EQ(paths.Below(root + "/linked/jobs/x"), "");
  EXPECT_TRUE(StatePaths::Overlap("jobs/u", "jobs/u/checkpoint-4"));
  EXPECT_TRUE(StatePaths::Overlap("jobs/u/checkpoint-4", "jobs/u"));
  EXPECT_FALSE(
      StatePaths::Overlap("jobs/u/checkpoint-4", "jobs/u/checkpoint-40"));
}

}  // namespace
}  // namespace roundhouse
