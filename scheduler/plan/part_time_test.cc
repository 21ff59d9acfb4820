#include "scheduler/plan/part_time.h"

#include <vector>

#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"

namespace roundhouse {
namespace {

TEST(PartNsTest, APartsTimeFollowsItsPass) {
  Plan stages;
  stages.fused = true;
  stages.forward = {{0, 1}, {2, 2}};
  stages.backward = {{3, 4}, {1, 2}, {0, 0}};
  const ModelCosts costs = SmallModel(4);
  const auto parts = PartsOf(UniformPlan(stages, {1, 1, 1}, 2, 1), 2);
  EXPECT_EQ(PartNs(parts[0], costs), 2 * 2 * 1'000'000);
  // Block 3 and the head: no recompute.
  EXPECT_EQ(PartNs(parts[2], costs), 2 * 10'000'000);
  EXPECT_EQ(PartNs(parts[3], costs), 2 * 2 * 4'000'000 - 2 * 2 * 1'000'000);
}

}  // namespace
}  // namespace roundhouse
