#include "client/shares.h"

#include <gtest/gtest.h>

#include <limits>

namespace roundhouse::client {
namespace {

using Ints = std::vector<int>;

TEST(WholePercentsTest, TheySumToTheWhole) {
  EXPECT_EQ(WholePercents({1, 1, 1}, 100), (Ints{34, 33, 33}));
  // Each alone would be rounded up, to 101 in all.
  EXPECT_EQ(WholePercents({62.5, 37.5}, 100), (Ints{63, 37}));
  EXPECT_EQ(WholePercents({0.004, 0.996}, 100), (Ints{0, 100}));
  EXPECT_EQ(WholePercents({7, 4, 2.6, 0.4}, 14), (Ints{7, 4, 3, 0}));
  EXPECT_EQ(WholePercents({3, 5}, 0), (Ints{0, 0}));
}

TEST(WholePercentsTest, NothingIsMadeOfNothing) {
  EXPECT_EQ(WholePercents({}, 100), Ints{});
  EXPECT_EQ(WholePercents({0, 0}, 100), (Ints{0, 0}));
  EXPECT_EQ(WholePercents({-1, 2}, 100), (Ints{0, 100}));
  EXPECT_EQ(WholePercents({std::numeric_limits<double>::quiet_NaN(), 2}, 100),
            (Ints{0, 100}));
}

}  // namespace
}  // namespace roundhouse::client
