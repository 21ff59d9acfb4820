#include "server/steps/step_marks.h"

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(StepMarksTest, AJobEndsAfterItsLastStepOrWhereItWasToldTo) {
  StepMarks marks{.total = 9, .begun = 4};
  EXPECT_EQ(marks.last(), 9);
  EXPECT_EQ(marks.first_end(), 4);
  marks.finish = 5;
  EXPECT_EQ(marks.last(), 5);
  EXPECT_EQ(marks.first_end(), 5);
  marks.finish = 12;  // an earlier life was longer
  EXPECT_EQ(marks.last(), 9);
}

TEST(StepMarksTest, AJobHasAStepOfItsOwnAtLeast) {
  StepMarks marks{.total = 9};
  EXPECT_EQ(marks.first_end(), 1);
  marks.GoOnFrom(3, false);
  EXPECT_EQ(marks.first_end(), 4);
  EXPECT_EQ(marks.base, 3);
  StepMarks own{.total = 9};
  own.GoOnFrom(3, true);
  EXPECT_EQ(own.first_end(), 3);
  EXPECT_EQ(own.base, 0);
}

}  // namespace
}  // namespace roundhouse
