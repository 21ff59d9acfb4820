#include "scheduler/plan/contribution_blocks.h"

#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/plan/step_plan.h"

namespace roundhouse {
namespace {

Plan Wide(int layers, int width) {
  Plan plan = BlockByBlock(layers);
  plan.split.assign(plan.slot_count(), std::vector<int>(width, 1));
  return plan;
}

TEST(ContributionBlocksTest, AreForWhatIsSentAndASlotThatIsReduced) {
  // Six slots that are out, and the parts of one more.
  EXPECT_EQ(BlocksOf(Wide(30, 1), 1, 6), (ContributionBlocks{7, 1}));
  EXPECT_EQ(BlocksOf(Wide(30, 4), 1, 12), (ContributionBlocks{16, 4}));
}

TEST(ContributionBlocksTest, AreNeverMoreThanTheSumsOfARound) {
  EXPECT_EQ(BlocksOf(Wide(4, 1), 3, 50), (ContributionBlocks{4, 1}));
  EXPECT_EQ(BlocksOf(Wide(4, 4), 3, 50), (ContributionBlocks{16, 4}));
}

TEST(ContributionBlocksTest, OneStageHasThoseOfTwoRounds) {
  const Plan plan = {{}, {{0, 3}}, true};
  EXPECT_EQ(BlocksOf(plan, 1, 6), (ContributionBlocks{3, 1}));
  EXPECT_EQ(BlocksOf(plan, 2, 6), (ContributionBlocks{6, 2}));
}

TEST(ContributionBlocksTest, TheFusedSlotCountsItsDecoderLayers) {
  Plan plan = {{{0, 0}, {1, 1}}, {{2, 6}, {1, 1}, {0, 0}}, true};
  // Layers 2..5, 1 and 0 follow each other.
  EXPECT_EQ(BlocksOf(plan, 1, 1), (ContributionBlocks{5, 1}));
  EXPECT_EQ(BlocksOf(plan, 1, 2), (ContributionBlocks{6, 1}));
}

TEST(ContributionBlocksTest, EverySlotOfRoundsOfEverySizeFits) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int layers = 1 + static_cast<int>(random() % 6);
    const int groups = 1 + static_cast<int>(random() % 9);
    Plan plan = Wide(layers, 1);
    for (std::vector<int>& split : plan.split) {
      std::vector<int> proportions(1 + random() % 5);
      for (int& part : proportions) part = 1 + static_cast<int>(random() % 4);
      split = SplitOf(proportions, groups);
    }
    const ContributionBlocks blocks =
        BlocksOf(plan, 2, 1 + static_cast<int>(random() % 4));
    for (int micro_batches = 1; micro_batches <= groups; ++micro_batches) {
      std::vector<int64_t> needed(plan.slot_count());
      for (const Part& part :
           PartsOf(PlanOfRound(plan, micro_batches, groups), micro_batches)) {
        needed[part.slot] += part.contributions * part.layers.layer_count();
      }
      for (int slot = layers; slot < plan.slot_count(); ++slot) {
        EXPECT_LE(needed[slot], slot == layers ? blocks.head : blocks.layers)
            << "slot " << slot << " of " << micro_batches << " micro-batches";
      }
    }
  }
}

}  // namespace
}  // namespace roundhouse
