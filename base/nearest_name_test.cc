#include "base/nearest_name.h"

#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(NearestNameTest, TakesTheFewestEdits) {
  EXPECT_EQ(NearestName("lst", {"list", "logs", "last-one"}), "list");
  EXPECT_EQ(NearestName("lerning_rate", {"seed", "learning_rate"}),
            "learning_rate");
}

TEST(NearestNameTest, WhatIsFarAwayIsNotMeant) {
  EXPECT_EQ(NearestName("zzzzzz", {"list", "logs"}), "");
  EXPECT_EQ(NearestName("x", {"y"}), "");  // every letter would be another
  EXPECT_EQ(NearestName("list", {}), "");
  EXPECT_EQ(NearestName(std::string(100, 'a'), {std::string(99, 'a')}), "");
}

TEST(NearestNameTest, ShortNamesHaveLittleReach) {
  const std::vector<std::string> names = {"get",  "list",  "logs",
                                          "plan", "model", "top"};
  for (const char* other : {"jobs", "gpu", "job", "test", "new", "set", "put",
                            "nodes", "login", "st"}) {
    EXPECT_EQ(NearestName(other, names), "") << other;
  }
  EXPECT_EQ(NearestName("gt", names), "get");
  EXPECT_EQ(NearestName("gett", names), "get");
  EXPECT_EQ(NearestName("ls", {"list", "logs"}), "");
}

TEST(NearestNameTest, SwappedNeighboursAreOneEdit) {
  EXPECT_EQ(NearestName("lsit", {"list", "logs"}), "list");
  EXPECT_EQ(NearestName("wacth", {"watch"}), "watch");
  EXPECT_EQ(NearestName("acb", {"abc"}), "abc");
}

TEST(NearestNameTest, ANameIsNotMeantInItsOwnPlace) {
  EXPECT_EQ(NearestName("help", {"help", "helm"}), "");
  EXPECT_EQ(NearestName("", {"", "a"}), "");
}

TEST(NearestNameTest, AsAQuestion) {
  EXPECT_EQ(DidYouMean("lst", {"list"}), "; did you mean list?");
  EXPECT_EQ(DidYouMean("zzzzzz", {"list"}), "");
}

}  // namespace
}  // namespace roundhouse
