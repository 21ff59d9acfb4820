#include "scheduler/simulate/host_work.h"

#include <vector>

#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"

namespace roundhouse {
namespace {

// One block and the head, each with two parts of one contribution.
std::vector<Part> TwoParts() {
  Part part;
  part.kind = SlotKind::kFused;
  part.layers = {0, 1};
  part.micro_batches = {0, 2};
  part.contributions = 1;
  return {part, part};
}

class HostWorkTest : public testing::Test {
 protected:
  HostWork Make(Updates updates, int steps, int rounds) {
    return {costs_,
            TwoParts(),
            {steps, rounds, 4, updates},
            Contributions::kModelDtype};
  }

  // Both parts' contributions; returns what can start then.
  static std::vector<HostWork::Job> Down(HostWork& host, int round, int layer) {
    host.ContributionsDown(round, layer);
    EXPECT_TRUE(host.TakeJobs().empty());
    host.ContributionsDown(round, layer);
    return host.TakeJobs();
  }

  // Ends the job; returns what can start then.
  static std::vector<HostWork::Job> Done(HostWork& host,
                                         const HostWork::Job& job) {
    host.Done(job);
    return host.TakeJobs();
  }

  const ModelCosts costs_ = SmallModel(1);
};

TEST_F(HostWorkTest, AnIsolatedStepIsReducedAndNothingElse) {
  HostWork host = Make(Updates::kNone, 1, 1);
  EXPECT_TRUE(host.WeightsMayGoUp(0, 0));
  EXPECT_TRUE(host.RowsAreThere(0));
  EXPECT_TRUE(host.ContributionsMayGoDown(0, 1));
  const auto jobs = Down(host, 0, 1);
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].kind, WorkKind::kReduce);
  EXPECT_EQ(jobs[0].bytes, 2 * 42'000'000 + 84'000'000);
  EXPECT_TRUE(Done(host, jobs[0]).empty());
}

TEST_F(HostWorkTest, ALayerIsUpdatedAsSoonAsItIsReduced) {
  HostWork host = Make(Updates::kAsReduced, 2, 1);
  const auto updates = Done(host, Down(host, 0, 0).at(0));
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].kind, WorkKind::kOptimizer);
  EXPECT_EQ(updates[0].bytes, 10'500'000 * 30);
  EXPECT_FALSE(host.WeightsMayGoUp(1, 0));
  EXPECT_TRUE(Done(host, updates[0]).empty());
  EXPECT_TRUE(host.WeightsMayGoUp(1, 0));
  EXPECT_FALSE(host.WeightsMayGoUp(1, 1));
}

TEST_F(HostWorkTest, ClippedUpdatesWaitForTheLastReduction) {
  HostWork host = Make(Updates::kClipped, 2, 1);
  EXPECT_TRUE(Done(host, Down(host, 0, 1).at(0)).empty());
  const auto updates = Done(host, Down(host, 0, 0).at(0));
  ASSERT_EQ(updates.size(), 2u);
  EXPECT_EQ(updates[0].layer, 0);
  EXPECT_EQ(updates[1].layer, 1);
}

TEST_F(HostWorkTest, RoundsAddUpBeforeTheUpdate) {
  HostWork host = Make(Updates::kAsReduced, 1, 2);
  EXPECT_FALSE(host.ContributionsMayGoDown(1, 0));
  EXPECT_TRUE(Done(host, Down(host, 0, 0).at(0)).empty());
  EXPECT_TRUE(host.ContributionsMayGoDown(1, 0));
  const auto second = Down(host, 1, 0);
  // The sum is read, too.
  EXPECT_EQ(second.at(0).bytes, 2 * 21'000'000 + 2 * 42'000'000);
  EXPECT_EQ(Done(host, second[0]).size(), 1u);
}

TEST_F(HostWorkTest, RowsWaitForTheirGradientsAndForABufferSet) {
  HostWork host = Make(Updates::kAsReduced, 3, 1);
  EXPECT_FALSE(host.RowsAreThere(1));
  for (int m = 0; m < 4; ++m) host.RowsGradientDown(0);
  EXPECT_TRUE(host.RowsAreThere(1));
  for (int m = 0; m < 4; ++m) host.RowsGradientDown(1);
  EXPECT_FALSE(host.RowsAreThere(2));
  for (const int layer : {0, 1}) Done(host, Down(host, 0, layer).at(0));
  EXPECT_TRUE(host.RowsAreThere(2));
}

TEST_F(HostWorkTest, AStaleStepReadsTheUpdateBeforeTheLast) {
  HostWork host = Make(Updates::kStale, 3, 1);
  EXPECT_TRUE(host.WeightsMayGoUp(1, 0));
  EXPECT_TRUE(host.RowsAreThere(1));
  const auto update = Done(host, Down(host, 0, 0).at(0));
  EXPECT_FALSE(host.WeightsMayGoUp(2, 0));
  // The next step's reduction would overwrite the sum that the update reads.
  EXPECT_TRUE(Down(host, 1, 0).empty());
  EXPECT_EQ(Done(host, update.at(0)).size(), 1u);
  EXPECT_TRUE(host.WeightsMayGoUp(2, 0));
}

TEST_F(HostWorkTest, FrozenWeightsWaitForNothing) {
  ModelCosts costs = SmallModel(1);
  costs.layer_gradient_bytes = 0;
  const HostWork host(costs, TwoParts(), {2, 1, 4, Updates::kAsReduced},
                      Contributions::kModelDtype);
  EXPECT_TRUE(host.WeightsMayGoUp(1, 0));
  EXPECT_FALSE(host.WeightsMayGoUp(1, 1));
}

// Somebody else decides: nothing starts by itself.
TEST_F(HostWorkTest, DirectedWorkStartsWhenItIsTold) {
  HostWork::Rounds rounds{2, 1, 4, Updates::kAsReduced};
  rounds.directed = true;
  HostWork host(costs_, TwoParts(), rounds, Contributions::kModelDtype);
  EXPECT_TRUE(Down(host, 0, 0).empty());
  host.Start(WorkKind::kReduce, 0, 0);
  auto jobs = host.TakeJobs();
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].bytes, 2 * 21'000'000 + 42'000'000);
  EXPECT_FALSE(host.ContributionsMayGoDown(1, 0));
  EXPECT_TRUE(Done(host, jobs[0]).empty());
  EXPECT_TRUE(host.ContributionsMayGoDown(1, 0));
  EXPECT_FALSE(host.WeightsMayGoUp(1, 0));
  host.Start(WorkKind::kOptimizer, 0, 0);
  jobs = host.TakeJobs();
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].kind, WorkKind::kOptimizer);
  EXPECT_TRUE(Done(host, jobs[0]).empty());
  EXPECT_TRUE(host.WeightsMayGoUp(1, 0));
}

TEST_F(HostWorkTest, OnePassReadsContributionsAndNoSum) {
  HostWork::Rounds rounds{2, 1, 4, Updates::kOnePass};
  rounds.directed = true;
  HostWork host(costs_, TwoParts(), rounds, Contributions::kModelDtype);
  EXPECT_TRUE(Down(host, 0, 0).empty());
  host.Start(WorkKind::kOptimizer, 0, 0);
  const auto reduction = host.TakeJobs();
  ASSERT_EQ(reduction.size(), 1u);
  EXPECT_EQ(reduction[0].kind, WorkKind::kReduce);
  EXPECT_EQ(reduction[0].bytes, 2 * 21'000'000);
  const auto update = Done(host, reduction[0]);
  ASSERT_EQ(update.size(), 1u);
  EXPECT_EQ(update[0].kind, WorkKind::kOptimizer);
  EXPECT_EQ(update[0].bytes, 10'500'000 * 26);
  // It is one operation: what it reads is free when it ends.
  EXPECT_FALSE(host.ContributionsMayGoDown(1, 0));
  EXPECT_FALSE(host.WeightsMayGoUp(1, 0));
  EXPECT_TRUE(Done(host, update[0]).empty());
  EXPECT_TRUE(host.ContributionsMayGoDown(1, 0));
  EXPECT_TRUE(host.WeightsMayGoUp(1, 0));
}

TEST_F(HostWorkTest, InOnePassTheEmbeddingKeepsItsSum) {
  ModelCosts costs = costs_;
  costs.tied_head = true;
  costs.embedding_gradient_bytes = costs.head_gradient_bytes;
  for (const int layer : {kEmbedding, kHeadShare}) {
    for (const int64_t count : {0, 3}) {
      EXPECT_EQ(ReduceBytes(costs, layer, Contributions::kFp32,
                            Updates::kOnePass, count),
                ReduceBytes(costs, layer, Contributions::kFp32,
                            Updates::kAsReduced, count));
    }
  }
  EXPECT_EQ(UpdateBytes(costs, kEmbedding, Updates::kOnePass), 21'000'000 * 30);
  EXPECT_EQ(UpdateBytes(costs, costs.head(), Updates::kOnePass), 0);
}

}  // namespace
}  // namespace roundhouse
