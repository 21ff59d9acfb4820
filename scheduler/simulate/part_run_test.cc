#include "scheduler/simulate/part_run.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"

namespace roundhouse {
namespace {

// Two blocks and the head, three micro-batches, whose inputs are there.
class FusedPart {
 public:
  explicit FusedPart(FusedSlots fused)
      : run_(part_, costs_, saved_, fused, PartRun::Place{}) {
    for (int lap = 0; lap < run_.lap_count(); ++lap) {
      run_.InputArrived(lap, PassDirection::kForward);
    }
  }
  PartRun& run() { return run_; }
  void AllWeightsArrive() {
    for (int layer = 0; layer <= 2; ++layer) run_.WeightsArrived(layer);
  }
  // Kind, first layer and end of what it does next, which then is done.
  std::vector<int> Step() {
    const std::optional<PartRun::Op> op = run_.Next();
    if (!op.has_value()) return {};
    run_.Finish(*op);
    return {static_cast<int>(op->kind), op->begin, op->end};
  }

 private:
  static Part Fused() {
    Part part;
    part.kind = SlotKind::kFused;
    part.layers = {0, 2};
    part.micro_batches = {0, 3};
    return part;
  }
  const Part part_ = Fused();
  const ModelCosts costs_ = SmallModel(2);
  const SavedInputs saved_;
  PartRun run_;
};

std::vector<int> Op(WorkKind kind, int begin, int end) {
  return {static_cast<int>(kind), begin, end};
}

TEST(PartRunTest, AWholeFusedSlotWaitsForWeightsAndRoom) {
  FusedPart part(FusedSlots::kWhole);
  part.run().AllowSums();
  part.run().WeightsArrived(0);
  EXPECT_EQ(part.Step(), std::vector<int>());
  FusedPart other(FusedSlots::kWhole);
  other.AllWeightsArrive();
  EXPECT_EQ(other.Step(), std::vector<int>());
  other.run().AllowSums();
  for (int lap = 0; lap < 3; ++lap) {
    EXPECT_EQ(other.Step(), Op(WorkKind::kFused, 0, 3));
  }
  EXPECT_TRUE(other.run().finished());
}

TEST(PartRunTest, ByLayerItGoesAsFarAsWeightsAndRoomLetIt) {
  FusedPart part(FusedSlots::kByLayer);
  EXPECT_EQ(part.Step(), std::vector<int>());
  part.run().WeightsArrived(0);
  EXPECT_EQ(part.Step(), Op(WorkKind::kForward, 0, 1));
  EXPECT_EQ(part.Step(), std::vector<int>());
  part.run().WeightsArrived(1);
  part.run().WeightsArrived(2);
  EXPECT_EQ(part.Step(), Op(WorkKind::kForward, 1, 2));
  EXPECT_EQ(part.Step(), Op(WorkKind::kHeadForward, 2, 3));
  EXPECT_EQ(part.Step(), std::vector<int>());
  part.run().AllowSums();
  EXPECT_EQ(part.Step(), Op(WorkKind::kHeadBackward, 2, 3));
  EXPECT_EQ(part.Step(), Op(WorkKind::kBackward, 0, 2));
  EXPECT_EQ(part.Step(), Op(WorkKind::kFused, 0, 3));
  EXPECT_EQ(part.Step(), Op(WorkKind::kForward, 0, 2));
  EXPECT_EQ(part.Step(), Op(WorkKind::kHeadForward, 2, 3));
  EXPECT_EQ(part.Step(), Op(WorkKind::kHeadBackward, 2, 3));
  EXPECT_EQ(part.Step(), Op(WorkKind::kBackward, 1, 2));
  EXPECT_EQ(part.Step(), Op(WorkKind::kBackward, 0, 1));
  EXPECT_TRUE(part.run().finished());
}

// Room for sums is all that is missing.
TEST(PartRunTest, ByLayerTheForwardNeedsNoRoom) {
  FusedPart part(FusedSlots::kByLayer);
  part.AllWeightsArrive();
  EXPECT_EQ(part.Step(), Op(WorkKind::kForward, 0, 2));
}

}  // namespace
}  // namespace roundhouse
