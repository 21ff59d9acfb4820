#include "scheduler/simulate/device_run.h"

#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"

namespace roundhouse {
namespace {

// Parts of two layers each.
class DeviceLaneTest : public testing::Test {
 protected:
  DeviceLaneTest() {
    part_.kind = SlotKind::kBackward;
    part_.layers = {0, 1};
    part_.micro_batches = {0, 1};
    for (PartRun* run : {&first_, &second_, &third_}) {
      lane_.sums.push_back({run, 2});
    }
    lane_.AllowSums();
  }

  Part part_;
  const ModelCosts costs_ = SmallModel(2);
  const SavedInputs saved_;
  PartRun first_{part_, costs_, saved_, FusedSlots::kWhole, {}};
  PartRun second_{part_, costs_, saved_, FusedSlots::kWhole, {}};
  PartRun third_{part_, costs_, saved_, FusedSlots::kWhole, {}};
  DeviceLane lane_;
};

TEST_F(DeviceLaneTest, SumsOfTwoPartsHaveRoom) {
  EXPECT_TRUE(first_.sums_allowed());
  EXPECT_TRUE(second_.sums_allowed());
  EXPECT_FALSE(third_.sums_allowed());
  lane_.SumsDown(first_);
  EXPECT_FALSE(third_.sums_allowed());
  lane_.SumsDown(first_);
  EXPECT_TRUE(third_.sums_allowed());
}

TEST_F(DeviceLaneTest, SumsMayOvertakeThoseOfAnEarlierPart) {
  lane_.SumsDown(second_);
  lane_.SumsDown(second_);
  EXPECT_FALSE(third_.sums_allowed());  // the first one's are there
  lane_.SumsDown(first_);
  lane_.SumsDown(first_);
  EXPECT_TRUE(third_.sums_allowed());
  ASSERT_EQ(lane_.sums.size(), 1u);
  EXPECT_EQ(lane_.sums.front().run, &third_);
}

}  // namespace
}  // namespace roundhouse
