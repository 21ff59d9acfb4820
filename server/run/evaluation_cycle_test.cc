#include "server/run/evaluation_cycle.h"

#include "server/testing/job_parts_test_fixture.h"

namespace roundhouse {
namespace {

using nlohmann::json;

class EvaluationCycleTest : public JobPartsTest {
 protected:
  void Start(const std::string& fields) {
    cycle_.reset();
    Prepare(absl::StrCat("max_steps: 9\neval_steps: 2\n", fields));
    marks_.total = 9;
    history_ = std::make_unique<JobHistory>(options_->spec.spec(), 3, "/job");
    cycle_ = std::make_unique<EvaluationCycle>(
        EvaluationCycle::Surroundings{*loop_, *arena_, *pool_, marks_,
                                      *history_, events_},
        *options_,
        EvaluationCycle::Calls{
            .validate = [this] { ++validations_; },
            .units = [] { return std::vector<wire::SlotUnit>(); },
            .ending = [this] { return ending_; },
            .resting = [this] { return resting_; },
            .over =
                [this](EvaluationCycle::Loss loss) { over_.push_back(loss); },
            .sampled = [this] { ++sampled_; }});
  }
  void At(int64_t step) {
    marks_.begun = marks_.reduced = marks_.completed = step;
  }
  void WaitForSamples() {
    if (!cycle_->sampling()) return End();
    loop_->After(absl::Milliseconds(1), [this] { WaitForSamples(); });
  }
  // An evaluation after `step` says so.
  void Evaluate(int64_t step, double loss) {
    At(step);
    ASSERT_TRUE(cycle_->Due()) << step;
    cycle_->Begin();
    cycle_->OnValidated(loss);
  }

  StepMarks marks_;
  std::unique_ptr<JobHistory> history_;
  std::unique_ptr<EvaluationCycle> cycle_;
  bool ending_ = false, resting_ = false;
  int validations_ = 0, sampled_ = 0;
  std::vector<EvaluationCycle::Loss> over_;
};

TEST_F(EvaluationCycleTest, EveryEvaluationIsToldAndTheBestIsKnown) {
  using Loss = EvaluationCycle::Loss;
  Start("");
  Evaluate(0, 5);
  At(1);
  EXPECT_FALSE(cycle_->Due());
  Evaluate(2, 3);
  Evaluate(4, 4);
  EXPECT_EQ(validations_, 3);
  EXPECT_EQ(over_,
            (std::vector<Loss>{Loss::kOther, Loss::kBest, Loss::kOther}));
  EXPECT_EQ(cycle_->best(), (Evaluation{2, 3}));
  EXPECT_EQ(cycle_->since_best(), 1);
  EXPECT_EQ(cycle_->evaluated_step(), 4);
  EXPECT_EQ(events_.evaluations.size(), 3u);
  EXPECT_EQ(history_->FoundEvaluations().size(), 3u);
  EXPECT_EQ(sampled_, 0) << "there are no prompts";
}

TEST_F(EvaluationCycleTest, TheLastStepIsTheSpecsOrAnEarlierOne) {
  Start(
      "early_stopping_patience: 1\nload_best_model_at_end: true\n"
      "save_steps: 2");
  EXPECT_EQ(cycle_->EndStep(), 9);
  marks_.finish = 7;
  EXPECT_EQ(cycle_->EndStep(), 7);
  Evaluate(2, 3);
  Evaluate(4, 4);
  EXPECT_TRUE(cycle_->out_of_patience());
  EXPECT_EQ(cycle_->EndStep(), 4);
}

TEST_F(EvaluationCycleTest, AJobThatEndsDrawsNoSamplesAndSavesNothing) {
  Start("");
  At(0);
  cycle_->Begin();
  ending_ = true;
  cycle_->OnValidated(5);
  EXPECT_TRUE(over_.empty());
  EXPECT_EQ(events_.evaluations.size(), 1u);
}

TEST_F(EvaluationCycleTest, AJobThatRestsDrawsItsSamplesLater) {
  Start("eval_prompts: [hello]\nload_best_model_at_end: true\nsave_steps: 2\n");
  At(2);
  cycle_->Begin();
  resting_ = true;
  Run([&] {
    cycle_->OnValidated(5);
    EXPECT_FALSE(cycle_->sampling());
    EXPECT_TRUE(over_.empty());
    EXPECT_TRUE(cycle_->Due());
    resting_ = false;
    cycle_->Begin();
    EXPECT_TRUE(cycle_->sampling());
    cycle_->StopSampling();
    loop_->After(absl::Milliseconds(1), [this] { WaitForSamples(); });
  });
  EXPECT_EQ(validations_, 1);
  EXPECT_EQ(over_, std::vector{EvaluationCycle::Loss::kBest});
}

TEST_F(EvaluationCycleTest, OnlyAnOwnCheckpointsBestCounts) {
  const json state = {
      {"best_global_step", 2},
      {"best_metric", 1.5},
      {"log_history",
       {{{"step", 2}, {"eval_loss", 1.5}}, {{"step", 4}, {"eval_loss", 2.5}}}}};
  for (const bool own : {true, false}) {
    Start("");
    At(4);
    marks_.base = own ? 0 : 4;
    history_->GoOnFrom(state, 4, 0);
    cycle_->GoOnFrom(state, own, "");
    EXPECT_EQ(cycle_->best().has_value(), own);
    EXPECT_EQ(cycle_->since_best(), own ? 1 : 0);
  }
}

// They could not be drawn, and are not made up for at another step.
TEST_F(EvaluationCycleTest, TheFirstSamplesOfAnOwnCheckpointAreOver) {
  const json state = {{"log_history", {{{"step", 2}, {"eval_loss", 1.5}}}}};
  for (const bool own : {true, false}) {
    Start("eval_prompts: [hello]");
    At(3);
    marks_.base = own ? 0 : 3;
    history_->GoOnFrom(state, 3, 0);
    cycle_->GoOnFrom(state, own, "");
    EXPECT_EQ(cycle_->Due(), !own);
  }
}

TEST_F(EvaluationCycleTest, SamplesThatCannotBeDrawnWarnAndCostNothing) {
  Start("eval_prompts: [hello]");
  At(0);
  Run([&] {
    cycle_->Begin();
    EXPECT_EQ(validations_, 1);
    cycle_->OnValidated(5);
    EXPECT_TRUE(cycle_->sampling());
    cycle_->StopSampling();
    loop_->After(absl::Milliseconds(1), [this] { WaitForSamples(); });
  });
  EXPECT_EQ(sampled_, 1);
  EXPECT_EQ(over_.size(), 1u);
  EXPECT_EQ(events_.warnings.size(), 1u);
}

}  // namespace
}  // namespace roundhouse
