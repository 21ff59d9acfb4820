#include "server/run/job_history.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

using nlohmann::json;

class JobHistoryTest : public testing::Test {
 protected:
  JobHistoryTest() {
    spec_.logging_steps = 3;
    spec_.eval_steps = 2;
    spec_.save_steps = 5;
    spec_.batch_size = 4;
  }
  StepReport Step(int64_t step, double loss) const {
    return {.step = step,
            .loss = loss,
            .learning_rate = 0.5,
            .grad_norm = 2.0,
            .epoch = history_.Epoch(step),
            .tokens = 10};
  }

  JobSpec spec_;
  JobHistory history_{spec_, 4, "/job"};
};

TEST_F(JobHistoryTest, AnEntryHasTheMeanLossSinceTheOneBefore) {
  for (int64_t step = 1; step <= 4; ++step) {
    history_.AddStep(Step(step, static_cast<double>(step)), 4);
  }
  ASSERT_EQ(history_.entries().size(), 2u);
  EXPECT_EQ(json::parse(history_.entries()[0]), (json{{"step", 3},
                                                      {"epoch", 0.75},
                                                      {"loss", 2.0},
                                                      {"learning_rate", 0.5},
                                                      {"grad_norm", 2.0}}));
  EXPECT_EQ(json::parse(history_.entries()[1])["loss"], 4.0);  // the last step
  EXPECT_EQ(history_.tokens_trained(), 40);
}

TEST_F(JobHistoryTest, ASkippedStepHasALossScaleAndNoNorm) {
  StepReport report = Step(3, 1);
  report.grad_norm.reset();
  report.loss_scale = 1024;
  history_.AddStep(report, 9);
  const json entry = json::parse(history_.entries().at(0));
  EXPECT_FALSE(entry.contains("grad_norm"));
  EXPECT_EQ(entry["loss_scale"], 1024.0);
}

TEST_F(JobHistoryTest, ACheckpointHasNoLaterSteps) {
  const json state = {{"log_history",
                       {{{"step", 3}, {"loss", 1.5}},
                        {{"step", 4}, {"eval_loss", 1.25}},
                        {{"step", 6}, {"loss", 1.0}},
                        {{"loss", 1.0}},
                        {{"step", "7"}},
                        {{"step", 2}, {"eval_loss", "low"}},
                        5}}};
  history_.GoOnFrom(state, 5, 77);
  EXPECT_EQ(history_.tokens_trained(), 77);
  EXPECT_EQ(history_.entries().size(), 3u);
  EXPECT_EQ(history_.FoundEvaluations(),
            (std::vector<Evaluation>{{4, 1.25},
                                     {2, std::numeric_limits<double>::max()}}));
}

// Whatever stands in its place.
TEST_F(JobHistoryTest, AHistoryThatIsNoneIsEmpty) {
  for (const json& state :
       {json::object(), json{{"log_history", 3}}, json{{"log_history", "x"}},
        json{{"log_history", json::object()}}}) {
    history_.GoOnFrom(state, 5, 0);
    EXPECT_TRUE(history_.entries().empty()) << state;
  }
}

TEST_F(JobHistoryTest, TheTrainerStateSaysWhatWasTheBest) {
  history_.AddEvaluation({2, 1.5});
  const StepMarks marks{.total = 9, .completed = 2};
  json state = json::parse(history_.TrainerState(marks, {}));
  EXPECT_EQ(state["global_step"], 2);
  EXPECT_EQ(state["max_steps"], 9);
  EXPECT_EQ(state["epoch"], 0.5);
  EXPECT_EQ(state["train_batch_size"], 4);
  EXPECT_TRUE(state["best_metric"].is_null());
  EXPECT_EQ(state["log_history"][0]["eval_loss"], 1.5);
  state = json::parse(history_.TrainerState(marks, Evaluation{2, 1.5}));
  EXPECT_EQ(state["best_global_step"], 2);
  EXPECT_EQ(state["best_metric"], 1.5);
  EXPECT_TRUE(state["best_model_checkpoint"].is_null());  // it is not kept
  spec_.load_best_model_at_end = true;
  state = json::parse(history_.TrainerState(marks, Evaluation{2, 1.5}));
  EXPECT_EQ(state["best_model_checkpoint"], "/job/checkpoint-2");
}

}  // namespace
}  // namespace roundhouse
