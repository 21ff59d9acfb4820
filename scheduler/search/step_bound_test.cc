#include "scheduler/search/step_bound.h"

#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"

namespace roundhouse {
namespace {

// Two blocks: 1 ms forward, 2 backward, 1 on a link; the head 3, 4 and 2.
class StepBoundTest : public testing::Test {
 protected:
  StepBoundTest() { machine_.devices.resize(2); }

  const ModelCosts costs_ = SmallModel(2);
  Machine machine_;
  BoundOptions options_{4, 1, Updates::kAsReduced, Contributions::kModelDtype};
};

TEST_F(StepBoundTest, ComputeAndTheTurnAroundOfLayerZero) {
  // (2 * 4 + 7) ms * 4 / 2.
  EXPECT_DOUBLE_EQ(ComputeNs(costs_, machine_, options_), 30e6);
  // 1 down, 63 MB reduced, 10.5 M parameters updated, 1 up.
  EXPECT_DOUBLE_EQ(TurnAroundNs(costs_, machine_, options_), 3.89e6);
  const StepBound bound = BoundOf(costs_, machine_, options_);
  EXPECT_DOUBLE_EQ(bound.ns, 33.89e6);
  EXPECT_EQ(bound.name, "layer 0");
  options_.updates = Updates::kStale;
  EXPECT_DOUBLE_EQ(BoundOf(costs_, machine_, options_).ns, 30e6);
  EXPECT_EQ(BoundOf(costs_, machine_, options_).name, "compute");
}

TEST_F(StepBoundTest, ALaterRoundReadsTheSumToo) {
  options_.rounds = 3;
  EXPECT_DOUBLE_EQ(ComputeNs(costs_, machine_, options_), 90e6);
  EXPECT_DOUBLE_EQ(TurnAroundNs(costs_, machine_, options_), 4.1e6);
}

TEST_F(StepBoundTest, ClippedTheHeadWaitsForAllUpdates) {
  options_.updates = Updates::kClipped;
  // 1.315 until layer 0 is reduced; blocks are updated in 1.575 each, the head
  // in 3.15, and goes up in 2; of what follows 4 ms of forward were hidden.
  const StepBound bound = BoundOf(costs_, machine_, options_);
  EXPECT_DOUBLE_EQ(bound.ns, 30e6 + 1.315e6 + 2 * 1.575e6 + 3.15e6 + 2e6 - 4e6);
  EXPECT_EQ(bound.name, "updates");
}

TEST_F(StepBoundTest, HostMemoryBoundsWhereItIsSlow) {
  // Both blocks could be in a fused tail: everything up once.  Blocks: 21 up,
  // 21 down, 63 reduced, 315 updated; the head twice that; 4 inputs of 2.1.
  EXPECT_EQ(LeastHostBytes(costs_, machine_, options_),
            4 * 420'000'000 + 4 * 2'100'000);
  machine_.devices.assign(2, {200'000'000});
  EXPECT_EQ(LeastHostBytes(costs_, machine_, options_),
            4 * 420'000'000 + 4 * 2'100'000 + 2 * 21'000'000);
  machine_.host_rate = 10;
  EXPECT_EQ(BoundOf(costs_, machine_, options_).name, "host memory");
}

// 8 bytes a parameter less: of layer 0, 21 MB read and 273 moved.
TEST_F(StepBoundTest, OnePassWritesAndReadsNoSum) {
  const int64_t two_passes = LeastHostBytes(costs_, machine_, options_);
  options_.updates = Updates::kOnePass;
  EXPECT_EQ(LeastHostBytes(costs_, machine_, options_),
            two_passes - 8 * 42'000'000);
  EXPECT_DOUBLE_EQ(TurnAroundNs(costs_, machine_, options_), 3.47e6);
  options_.updates = Updates::kOnePassStale;
  EXPECT_EQ(TurnAroundNs(costs_, machine_, options_), 0);
}

TEST_F(StepBoundTest, NothingTrainedTurnsAroundAtOnce) {
  ModelCosts costs = costs_;
  costs.layer_gradient_bytes = 0;
  EXPECT_EQ(TurnAroundNs(costs, machine_, options_), 0);
}

}  // namespace
}  // namespace roundhouse
