#include "server/observe/loss_curve.h"

#include <numeric>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(LossCurveTest, AShortRunHasEveryStep) {
  LossCurve curve;
  EXPECT_TRUE(curve.points().empty());
  for (int step = 1; step <= 200; ++step) curve.Add(step, 10.0 / step);
  ASSERT_EQ(curve.points().size(), kMaxLossPoints);
  EXPECT_EQ(curve.points()[2].step, 3);
  EXPECT_DOUBLE_EQ(curve.points()[2].loss, 10.0 / 3);
}

TEST(LossCurveTest, PointsOfALongRunAreMeans) {
  LossCurve curve;
  for (int step = 1; step <= 1000; ++step) curve.Add(step, step);
  const auto& points = curve.points();
  EXPECT_LE(points.size(), kMaxLossPoints);
  EXPECT_GT(points.size(), kMaxLossPoints / 2);
  // Eight steps each: 1 to 8, 9 to 16.
  EXPECT_EQ(points[0].step, 8);
  EXPECT_DOUBLE_EQ(points[0].loss, 4.5);
  EXPECT_EQ(points[1].step, 16);
  EXPECT_DOUBLE_EQ(points[1].loss, 12.5);
  EXPECT_EQ(points.back().step, 1000);
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_EQ(points[i].step - points[i - 1].step, 8);
  }
}

TEST(LossCurveTest, TheLastPointIsTheMeanOfWhatItHas) {
  LossCurve curve;
  for (int step = 1; step <= 400; ++step) curve.Add(step, 1);
  curve.Add(401, 5);  // four a point from here on
  EXPECT_EQ(curve.points().back().step, 401);
  EXPECT_DOUBLE_EQ(curve.points().back().loss, 5);
  curve.Add(402, 2);
  EXPECT_EQ(curve.points().back().step, 402);
  EXPECT_DOUBLE_EQ(curve.points().back().loss, 3.5);
}

}  // namespace
}  // namespace roundhouse
