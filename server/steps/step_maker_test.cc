#include "server/steps/step_maker.h"

#include "server/testing/job_parts_test_fixture.h"

namespace roundhouse {
namespace {

class StepMakerTest : public JobPartsTest {
 protected:
  StepMaker Make(const std::string& fields) {
    Prepare(fields);
    return StepMaker(options_->spec, *train_, validation_.get());
  }
};

TEST_F(StepMakerTest, AStepReadsWhatTheOneBeforeItLeaves) {
  StepMaker maker = Make("max_steps: 9");
  EXPECT_EQ(maker.steps_per_epoch(), 3);
  EXPECT_EQ(maker.FirstVersion(), 1u);
  const StepEntry first = maker.Train(1, 2);
  EXPECT_TRUE(first.data.train);
  EXPECT_EQ(first.data.version, 1u);
  EXPECT_EQ(first.data.reads_update, 0);
  const StepEntry second = maker.Train(2, 2);
  EXPECT_EQ(second.data.version, first.data.next_version);
  EXPECT_EQ(second.data.reads_update, 1);
  EXPECT_EQ(maker.version(), second.data.next_version);
  EXPECT_GT(second.data.next_version, first.data.next_version);
}

TEST_F(StepMakerTest, AnAsynchronousStepReadsTheOneBeforeThat) {
  StepMaker maker = Make("max_steps: 9\noptimizer_mode: async");
  maker.FirstVersion();
  const StepEntry first = maker.Train(1, 2);
  const StepEntry second = maker.Train(2, 2);
  const StepEntry third = maker.Train(3, 2);
  EXPECT_EQ(second.data.version, first.data.version);
  EXPECT_EQ(third.data.version, first.data.next_version);
  EXPECT_EQ(third.data.reads_update, 1);
}

TEST_F(StepMakerTest, AStepWithoutAnUpdateLeavesItsVersion) {
  StepMaker maker = Make("max_steps: 9");
  maker.FirstVersion();
  const StepEntry skipped = maker.Train(1, 2);
  maker.Skip(skipped);
  EXPECT_EQ(maker.version(), skipped.data.version);
  EXPECT_EQ(maker.Train(2, 2).data.version, skipped.data.version);
}

TEST_F(StepMakerTest, RowsAreCutIntoRoundsAndEveryPassIsNew) {
  StepMaker maker = Make("max_steps: 9");
  maker.FirstVersion();
  const StepEntry step = maker.Train(1, 1);  // 4 rows, 2 in a micro-batch
  ASSERT_EQ(step.data.rounds.size(), 2u);
  EXPECT_EQ(step.data.rounds[0].micro_batches.size(), 1u);
  EXPECT_EQ(step.data.rounds[0].micro_batches[0].rows.size(), 2u);
  EXPECT_EQ(step.data.rounds[1].pass, step.data.rounds[0].pass + 1);
  EXPECT_GT(step.data.target_tokens, 0);
  EXPECT_EQ(maker.Train(2, 2).data.rounds.size(), 1u);
}

TEST_F(StepMakerTest, AnEvaluationTakesTheWholeSetOnce) {
  StepMaker maker = Make("max_steps: 9");
  maker.FirstVersion();
  maker.Train(1, 2);
  const uint64_t version = maker.version();
  const StepEntry entry = maker.Evaluate(1, 2);
  EXPECT_FALSE(entry.data.train);
  EXPECT_EQ(entry.data.step, 1);
  EXPECT_EQ(entry.data.reads_update, 1);
  EXPECT_EQ(entry.data.version, version);
  EXPECT_EQ(entry.data.dataset, validation_.get());
  size_t rows = 0;
  for (const RoundData& round : entry.data.rounds) {
    for (const MicroBatch& batch : round.micro_batches) {
      rows += batch.rows.size();
    }
  }
  EXPECT_EQ(rows, 10u);
  EXPECT_EQ(maker.version(), version) << "it leaves no weights";
}

TEST_F(StepMakerTest, TheLossIsTheMeanOverTargetTokens) {
  StepEntry entry;
  entry.data.target_tokens = 4;
  entry.results[{0, 0}].loss_sum = 3;
  entry.results[{0, 0}].finite = wire::Finite::kYes;
  entry.results[{1, 0}].loss_sum = 5;
  entry.results[{1, 0}].finite = wire::Finite::kYes;
  EXPECT_EQ(SumLoss(entry).mean, 2);
  EXPECT_TRUE(SumLoss(entry).finite);
  entry.results[{1, 0}].finite = wire::Finite::kNo;
  EXPECT_FALSE(SumLoss(entry).finite);
}

}  // namespace
}  // namespace roundhouse
