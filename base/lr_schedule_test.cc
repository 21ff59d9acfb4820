#include "base/lr_schedule.h"

#include <cmath>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// The expected values were computed by hand from the definitions that
// transformers' optimization.py documents; tests/parity checks the same
// functions against the real ones.
TEST(LrScheduleTest, WarmUpRisesFromZero) {
  for (LrScheduleType type :
       {LrScheduleType::kConstant, LrScheduleType::kLinear,
        LrScheduleType::kCosine}) {
    const LrSchedule schedule{type, 0.5, 4, 12};
    EXPECT_EQ(LearningRate(schedule, 0), 0.0);
    EXPECT_EQ(LearningRate(schedule, 1), 0.125);
    EXPECT_EQ(LearningRate(schedule, 3), 0.375);
    EXPECT_EQ(LearningRate(schedule, 4), 0.5);
  }
}

TEST(LrScheduleTest, ConstantStays) {
  const LrSchedule schedule{LrScheduleType::kConstant, 0.5, 0, 4};
  EXPECT_EQ(LearningRate(schedule, 0), 0.5);
  EXPECT_EQ(LearningRate(schedule, 99), 0.5);
}

TEST(LrScheduleTest, LinearFallsToZero) {
  const LrSchedule schedule{LrScheduleType::kLinear, 0.5, 4, 12};
  EXPECT_EQ(LearningRate(schedule, 8), 0.25);
  EXPECT_EQ(LearningRate(schedule, 12), 0.0);
  EXPECT_EQ(LearningRate(schedule, 13), 0.0);
}

TEST(LrScheduleTest, CosineFallsToZeroAndStays) {
  const LrSchedule schedule{LrScheduleType::kCosine, 0.5, 4, 12};
  EXPECT_NEAR(LearningRate(schedule, 6), 0.25 * (1 + std::sqrt(0.5)), 1e-15);
  EXPECT_NEAR(LearningRate(schedule, 8), 0.25, 1e-15);
  EXPECT_EQ(LearningRate(schedule, 12), 0.0);
  EXPECT_EQ(LearningRate(schedule, 20), 0.0);
}

TEST(LrScheduleTest, WarmUpAsLongAsTheJob) {
  const LrSchedule schedule{LrScheduleType::kLinear, 1.0, 4, 4};
  EXPECT_EQ(LearningRate(schedule, 3), 0.75);
  EXPECT_EQ(LearningRate(schedule, 4), 0.0);
}

}  // namespace
}  // namespace roundhouse
