#include "server/dataset/helper_lanes.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr HelperLanes::Limits kLimits = {
    .short_running = 3, .long_running = 2, .running_each = 2};

std::vector<std::string> TakeAll(HelperLanes& lanes) {
  std::vector<std::string> taken;
  while (const auto id = lanes.TakeNext()) taken.push_back(*id);
  return taken;
}

using Ids = std::vector<std::string>;

TEST(HelperLanesTest, WhoCameFirstGoesFirst) {
  HelperLanes lanes({.short_running = 1, .long_running = 1, .running_each = 1});
  for (const char* id : {"a", "b", "c"}) lanes.Add(id, HelperLane::kLong, "");
  EXPECT_EQ(TakeAll(lanes), Ids{"a"});
  EXPECT_TRUE(lanes.Runs("a"));
  EXPECT_FALSE(lanes.Runs("b"));
  lanes.Remove("a");
  EXPECT_EQ(TakeAll(lanes), Ids{"b"});
  EXPECT_EQ(lanes.size(), 2u);
}

TEST(HelperLanesTest, LongOnesNeverTakeTheShortOnesSlots) {
  HelperLanes lanes(kLimits);
  for (int i = 0; i < 10; ++i) {
    lanes.Add(absl::StrCat("long-", i), HelperLane::kLong,
              absl::StrCat("uid:", i));
  }
  EXPECT_EQ(TakeAll(lanes), (Ids{"long-0", "long-1"}));
  lanes.Add("short", HelperLane::kShort, "uid:1");
  EXPECT_EQ(TakeAll(lanes), Ids{"short"});
  EXPECT_EQ(lanes.Waiting(HelperLane::kLong), 8u);
  EXPECT_EQ(lanes.Waiting(HelperLane::kShort), 0u);
}

TEST(HelperLanesTest, NobodyHasAllOfALane) {
  HelperLanes lanes(kLimits);
  for (int i = 0; i < 5; ++i) {
    lanes.Add(absl::StrCat("a", i), HelperLane::kShort, "uid:1");
  }
  EXPECT_EQ(TakeAll(lanes), (Ids{"a0", "a1"}));
  EXPECT_EQ(lanes.Waiting(HelperLane::kShort, "uid:1"), 3u);
  lanes.Add("b0", HelperLane::kShort, "uid:2");
  EXPECT_EQ(TakeAll(lanes), Ids{"b0"});
}

TEST(HelperLanesTest, WhoIsNotKnownHasNoShare) {
  HelperLanes lanes(kLimits);
  for (const char* id : {"a", "b", "c", "d"}) {
    lanes.Add(id, HelperLane::kShort, "");
  }
  EXPECT_EQ(TakeAll(lanes), (Ids{"a", "b", "c"}));
}

TEST(HelperLanesTest, WhoHasFewerRunningGoesFirst) {
  HelperLanes lanes(kLimits);
  lanes.Add("a0", HelperLane::kShort, "uid:1");
  lanes.Add("a1", HelperLane::kShort, "uid:1");
  lanes.Add("b0", HelperLane::kShort, "uid:2");
  EXPECT_EQ(TakeAll(lanes), (Ids{"a0", "b0", "a1"}));
  lanes.Add("a2", HelperLane::kShort, "uid:1");
  lanes.Add("c0", HelperLane::kShort, "uid:3");
  lanes.Remove("a1");
  EXPECT_EQ(TakeAll(lanes), Ids{"c0"});
}

TEST(HelperLanesTest, AWaitingOneCanLeave) {
  HelperLanes lanes(kLimits);
  lanes.Add("a", HelperLane::kShort, "");
  EXPECT_TRUE(lanes.Has("a"));
  lanes.Remove("a");
  lanes.Remove("a");
  EXPECT_FALSE(lanes.Has("a"));
  EXPECT_EQ(lanes.TakeNext(), std::nullopt);
}

TEST(HelperLanesDeathTest, NobodyWaitsTwice) {
  HelperLanes lanes(kLimits);
  lanes.Add("a", HelperLane::kShort, "");
  EXPECT_DEATH(lanes.Add("a", HelperLane::kLong, ""), "a");
}

}  // namespace
}  // namespace roundhouse
