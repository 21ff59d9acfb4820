#include "tests/bench/statistics.h"

#include <cmath>

#include "gtest/gtest.h"

namespace roundhouse::bench {
namespace {

TEST(StatisticsTest, QuantileOfOneSampleIsThatSample) {
  for (const double q : {0.0, 0.5, 0.99, 1.0}) {
    EXPECT_EQ(Quantile({7}, q), 7);
  }
}

TEST(StatisticsTest, QuantileSortsAndInterpolates) {
  const std::vector<double> samples = {40, 10, 30, 20};
  EXPECT_EQ(Quantile(samples, 0), 10);
  EXPECT_EQ(Quantile(samples, 1), 40);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.5), 25);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.25), 17.5);
}

TEST(StatisticsTest, HighQuantileOfManySamples) {
  std::vector<double> samples;
  for (int i = 1000; i >= 0; --i) samples.push_back(i);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.99), 990);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.5), 500);
}

TEST(StatisticsTest, SummaryIsMedianAndExtremes) {
  const Spread spread = Summarize({3, 1, 9});
  EXPECT_EQ(spread.median, 3);
  EXPECT_EQ(spread.low, 1);
  EXPECT_EQ(spread.high, 9);
}

TEST(StatisticsDeathTest, RefusesWhatHasNoQuantile) {
  EXPECT_DEATH(Quantile({}, 0.5), "");
  EXPECT_DEATH(Quantile({1}, 1.5), "");
  EXPECT_DEATH(Quantile({1, std::nan("")}, 0.5), "");
}

}  // namespace
}  // namespace roundhouse::bench
