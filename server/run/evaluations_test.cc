#include "server/run/evaluations.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// The steps of a job of `total` that are evaluated.
std::vector<int64_t> StepsOf(Evaluations evaluations, int64_t first,
                             int64_t total) {
  std::vector<int64_t> steps;
  for (int64_t step = first; step <= total; ++step) {
    if (!evaluations.DueAfter(step, step == total)) continue;
    steps.push_back(step);
    evaluations.Add({step, 1.0});
    EXPECT_FALSE(evaluations.DueAfter(step, step == total)) << "twice";
  }
  return steps;
}

TEST(EvaluationsTest, BeforeAfterAndEveryEvalSteps) {
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(StepsOf(Evaluations({}), 0, 6), Steps());
  EXPECT_EQ(StepsOf(Evaluations({.has_validation_set = true}), 0, 6),
            (Steps{0, 6}));
  const EvaluationRules every_two = {.has_validation_set = true,
                                     .eval_steps = 2};
  EXPECT_EQ(StepsOf(Evaluations(every_two), 0, 6), (Steps{0, 2, 4, 6}));
  EXPECT_EQ(StepsOf(Evaluations(every_two), 0, 7), (Steps{0, 2, 4, 6, 7}));
}

TEST(EvaluationTimesTest, NoneUpToTheStepThatIsDone) {
  EvaluationTimes times(true, 3);
  EXPECT_TRUE(times.DueAfter(0, false));
  times.DoneUpTo(3);
  EXPECT_EQ(times.done_step(), 3);
  EXPECT_FALSE(times.DueAfter(3, true));
  EXPECT_FALSE(times.DueAfter(4, false));
  EXPECT_TRUE(times.DueAfter(4, true));
  EXPECT_TRUE(times.DueAfter(6, false));
  EXPECT_FALSE(EvaluationTimes(false, 3).DueAfter(0, true));
}

TEST(EvaluationsTest, GoingOnRepeatsNoneAndSkipsNone) {
  using Steps = std::vector<int64_t>;
  const EvaluationRules rules = {.has_validation_set = true, .eval_steps = 2};
  for (int64_t evaluated : {2, 4}) {
    Evaluations evaluations(rules);
    evaluations.GoOnFrom({.evaluated_step = evaluated});
    EXPECT_EQ(StepsOf(evaluations, 4, 7),
              evaluated == 2 ? (Steps{4, 6, 7}) : (Steps{6, 7}));
  }
  // A checkpoint of a job without a validation set: one before its first step.
  Evaluations foreign(rules);
  foreign.GoOnFrom({.base_step = 5});
  EXPECT_EQ(StepsOf(foreign, 5, 7), (Steps{5, 6, 7}));
}

TEST(EvaluationsTest, TheLowestLossIsTheBestAndTheEarlierOfEquals) {
  Evaluations evaluations({.has_validation_set = true, .eval_steps = 1});
  EXPECT_FALSE(evaluations.Add({0, 0.5}));  // no checkpoint of it
  EXPECT_EQ(evaluations.best(), std::nullopt);
  EXPECT_TRUE(evaluations.Add({1, 3}));
  EXPECT_TRUE(evaluations.Add({2, 2}));
  EXPECT_FALSE(evaluations.Add({3, 2}));
  EXPECT_FALSE(evaluations.Add({4, 2.5}));
  EXPECT_EQ(evaluations.best(), (Evaluation{2, 2}));
  EXPECT_EQ(evaluations.since_best(), 2);
  EXPECT_FALSE(evaluations.OutOfPatience());  // there is no limit
}

TEST(EvaluationsTest, ABestOneWithoutCheckpointDoesNotCount) {
  Evaluations evaluations({.has_validation_set = true, .eval_steps = 1});
  evaluations.Add({1, 3});
  evaluations.Add({2, 2});
  evaluations.DropBestOf(1);
  EXPECT_EQ(evaluations.best(), (Evaluation{2, 2}));
  evaluations.DropBestOf(2);
  EXPECT_EQ(evaluations.best(), (Evaluation{1, 3}));
  EXPECT_TRUE(evaluations.Add({3, 2.5}));
}

TEST(EvaluationsTest, PatienceCountsEvaluationsInARow) {
  Evaluations evaluations(
      {.has_validation_set = true, .eval_steps = 1, .patience = 2});
  evaluations.Add({1, 3});
  evaluations.Add({2, 3});
  EXPECT_FALSE(evaluations.OutOfPatience());
  evaluations.Add({3, 2});
  evaluations.Add({4, 2});
  EXPECT_FALSE(evaluations.OutOfPatience());
  evaluations.Add({5, 2});
  EXPECT_TRUE(evaluations.OutOfPatience());
}

TEST(EvaluationsTest, TheBestOneAndThePatienceAreTakenUp) {
  Evaluations evaluations(
      {.has_validation_set = true, .eval_steps = 1, .patience = 2});
  evaluations.GoOnFrom(
      {.evaluated_step = 4, .best = Evaluation{3, 1.5}, .since_best = 1});
  EXPECT_FALSE(evaluations.Add({5, 1.5}));
  EXPECT_TRUE(evaluations.OutOfPatience());
  EXPECT_EQ(evaluations.best(), (Evaluation{3, 1.5}));
}

TEST(EvaluationsTest, AnotherJobsStepIsNotTheBest) {
  Evaluations evaluations({.has_validation_set = true, .eval_steps = 1});
  evaluations.GoOnFrom({.base_step = 4});
  EXPECT_FALSE(evaluations.Add({4, 1}));
  EXPECT_TRUE(evaluations.Add({5, 2}));
}

TEST(PerplexityTest, IsAlwaysFinite) {
  EXPECT_DOUBLE_EQ(Perplexity(2), std::exp(2.0));
  EXPECT_TRUE(std::isfinite(Perplexity(709)));
  EXPECT_TRUE(std::isfinite(Perplexity(710)));
  EXPECT_TRUE(std::isfinite(Perplexity(1e300)));
  EXPECT_GT(Perplexity(710), 1e308);
}

}  // namespace
}  // namespace roundhouse
