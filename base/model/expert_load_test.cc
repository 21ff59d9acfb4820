#include "base/model/expert_load.h"

#include <cmath>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(ExpertLoadTest, EvenAndUneven) {
  EXPECT_EQ(LoadOf(3, {5, 5, 5, 5}), (LayerLoad{3, 1, 1, 0}));
  const LayerLoad one = LoadOf(0, {0, 8, 0, 0});
  EXPECT_EQ(one.max_over_mean, 4);
  EXPECT_EQ(one.entropy, 0);
  EXPECT_EQ(one.unhit, 3);
  const LayerLoad some = LoadOf(1, {6, 2, 0, 0});
  EXPECT_EQ(some.max_over_mean, 3);
  EXPECT_NEAR(some.entropy,
              -(0.75 * std::log(0.75) + 0.25 * std::log(0.25)) / std::log(4),
              1e-12);
  EXPECT_EQ(some.unhit, 2);
  EXPECT_EQ(LoadOf(0, {7}), (LayerLoad{0, 1, 1, 0}));
  EXPECT_EQ(LoadOf(2, {0, 0, 0}), (LayerLoad{2, 0, 0, 3}));
}

TEST(ExpertLoadTest, ASummaryIsOfTheWorst) {
  const ExpertLoadSummary summary =
      SummaryOf({{1, 1.5, 0.9, 1}, {4, 2.5, 0.8, 0}, {6, 2, 0.7, 3}});
  EXPECT_EQ(summary, (ExpertLoadSummary{2.5, 4, 0.7, 4}));
}

}  // namespace
}  // namespace roundhouse
