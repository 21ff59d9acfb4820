#include "scheduler/plan/step_plan.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// Four blocks and a head: two forward slots, head and block 3 fused, two
// backward slots.
Plan Stages() {
  Plan plan;
  plan.fused = true;
  plan.forward = {{0, 1}, {2, 2}};
  plan.backward = {{3, 4}, {1, 2}, {0, 0}};
  return plan;
}

TEST(StepPlanTest, WidthsCutTheMicroBatchesAtGroups) {
  const StepPlan plan = UniformPlan(Stages(), {1, 3, 8}, 6, 4);
  ASSERT_EQ(plan.slot_count(), 5);
  // Groups of 2, 1, 2, 1 micro-batches.
  EXPECT_EQ(plan.shares[1], (std::vector<IndexRange>{{0, 6}}));
  EXPECT_EQ(plan.shares[2], (std::vector<IndexRange>{{0, 3}, {3, 5}, {5, 6}}));
  EXPECT_EQ(plan.shares[3].size(), 4u);
  EXPECT_EQ(CheckStepPlan(plan, 5, 6, 4), absl::OkStatus());
  EXPECT_EQ(ToString(plan),
            "forward [0,1] x1 [2,2] x1 fused [3,4] x3 backward [1,2] x4 [0,0] "
            "x4");
}

int64_t Squares(const std::vector<IndexRange>& shares) {
  int64_t sum = 0;
  for (const IndexRange& share : shares) sum += share.size() * share.size();
  return sum;
}

// The least of all ways to cut the groups from `group` on.
int64_t LeastSquares(const std::vector<IndexRange>& groups, size_t group,
                     int parts) {
  if (parts == 0) return group == groups.size() ? 0 : 1'000'000;
  int64_t least = 1'000'000;
  for (size_t end = group + 1; end <= groups.size(); ++end) {
    const int64_t size = groups[end - 1].end - groups[group].begin;
    least = std::min(least, size * size + LeastSquares(groups, end, parts - 1));
  }
  return least;
}

TEST(StepPlanTest, EvenSharesDifferLeastInMicroBatches) {
  const auto groups = GroupRanges(12, 8);  // 2, 1, 2, 1, 2, 1, 2, 1
  EXPECT_EQ(EvenShares(groups, 3),
            (std::vector<IndexRange>{{0, 5}, {5, 9}, {9, 12}}));
  // Shares that cannot be equal have the larger ones first, as in UniformPlan.
  EXPECT_EQ(EvenShares(GroupRanges(8, 8), 3),
            UniformPlan(Stages(), {3, 1, 1}, 8, 8).shares[0]);
  constexpr uint32_t kSeed = 20261124;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 200; ++i) {
    const int micro_batches = 1 + static_cast<int>(random() % 24);
    const auto some = GroupRanges(micro_batches, 1 + random() % 10);
    const int parts = 1 + static_cast<int>(random() % some.size());
    SCOPED_TRACE(testing::Message()
                 << "seed " << kSeed << " case " << i << ": " << micro_batches
                 << " in " << some.size() << " to " << parts);
    const auto shares = EvenShares(some, parts);
    ASSERT_EQ(static_cast<int>(shares.size()), parts);
    EXPECT_EQ(Squares(shares), LeastSquares(some, 0, parts));
    int64_t next = 0;
    for (const IndexRange& share : shares) {
      EXPECT_EQ(share.begin, next);
      next = share.end;
    }
    EXPECT_EQ(next, micro_batches);
  }
}

TEST(StepPlanTest, OfASlotLargerPartsAreSentFirst) {
  const StepPlan plan = UniformPlan(Stages(), {8, 8, 4}, 12, 8);
  const std::vector<Part> parts = PartsOf(plan, 12);
  std::vector<int64_t> begins, slots;
  for (const Part& part : parts) {
    slots.push_back(part.slot);
    if (part.slot == 0) begins.push_back(part.micro_batches.begin);
  }
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 3, 6, 9, 2, 5, 8, 11}));
  EXPECT_TRUE(std::is_sorted(slots.begin(), slots.end()));
}

TEST(StepPlanTest, SlowDevicesGetSmallerShares) {
  const StepPlan plan =
      ProportionalPlan(Stages(), {2, 3, 4}, 7, 7, {1, 0.5, 1, 0.01});
  EXPECT_EQ(plan.shares[0], (std::vector<IndexRange>{{0, 4}, {4, 7}}));
  EXPECT_EQ(plan.shares[2], (std::vector<IndexRange>{{0, 3}, {3, 6}, {6, 7}}));
  // None for the fourth.
  EXPECT_EQ(plan.shares[3].size(), 3u);
  EXPECT_EQ(CheckStepPlan(plan, 5, 7, 4), absl::OkStatus());
}

TEST(StepPlanTest, PartsSendOneSumASubtree) {
  StepPlan plan = UniformPlan(Stages(), {2, 2, 2}, 8, 8);
  plan.shares[3] = {{0, 3}, {3, 8}};
  const std::vector<Part> parts = PartsOf(plan, 8);
  ASSERT_EQ(parts.size(), 10u);
  EXPECT_EQ(parts[0].kind, SlotKind::kForward);
  EXPECT_EQ(parts[0].contributions, 0);
  EXPECT_EQ(parts[5].kind, SlotKind::kFused);
  EXPECT_EQ(parts[5].layers, (LayerRange{3, 4}));
  EXPECT_EQ(parts[5].micro_batches, (IndexRange{4, 8}));
  EXPECT_EQ(parts[5].contributions, 1);
  // 3 and 4-7, the larger part; 0-1 and 2.
  EXPECT_EQ(parts[6].groups, 5);
  EXPECT_EQ(parts[6].contributions, 2);
  EXPECT_EQ(parts[7].groups, 3);
  EXPECT_EQ(parts[7].contributions, 2);
}

TEST(StepPlanTest, AFullRoundGivesBackWhatItIsCutBy) {
  EXPECT_EQ(PlanOfFullRound(UniformPlan(Stages(), {1, 1, 1}, 8, 4), 8),
            Stages());
  for (const int micro_batches : {8, 11}) {
    const StepPlan round = UniformPlan(Stages(), {2, 3, 4}, micro_batches, 8);
    const Plan plan = PlanOfFullRound(round, micro_batches);
    ASSERT_EQ(CheckPlan(plan, 5), absl::OkStatus());
    EXPECT_EQ(plan.split[2], (std::vector<int>{3, 3, 2}));
    EXPECT_EQ(PlanOfRound(plan, micro_batches, 8).shares, round.shares);
  }
}

TEST(StepPlanTest, APlanOfARoundIsCutInProportion) {
  Plan plan = Stages();
  plan.split = {{8}, {4, 4}, {3, 5}, {3, 3, 2}, {4, 4}};
  ASSERT_EQ(CheckPlan(plan, 5), absl::OkStatus());
  const StepPlan full = PlanOfRound(plan, 8, 8);
  EXPECT_EQ(CheckStepPlan(full, 5, 8, 3), absl::OkStatus());
  EXPECT_EQ(full.shares[0], (std::vector<IndexRange>{{0, 8}}));
  EXPECT_EQ(full.shares[2], (std::vector<IndexRange>{{0, 3}, {3, 8}}));
  EXPECT_EQ(full.shares[3], (std::vector<IndexRange>{{0, 3}, {3, 6}, {6, 8}}));
  // 12 micro-batches: groups of 2, 1, 2, 1, 2, 1, 2, 1.
  EXPECT_EQ(PlanOfRound(plan, 12, 8).shares[2],
            (std::vector<IndexRange>{{0, 5}, {5, 12}}));
  // 1.875 and 3.125 groups; then one group for three parts.
  EXPECT_EQ(PlanOfRound(plan, 5, 8).shares[2],
            (std::vector<IndexRange>{{0, 2}, {2, 5}}));
  EXPECT_EQ(PlanOfRound(plan, 1, 8).shares[3],
            (std::vector<IndexRange>{{0, 1}}));
  EXPECT_EQ(PlanOfRound(Stages(), 7, 3).shares,
            (std::vector<std::vector<IndexRange>>(5, {{0, 7}})));
}

TEST(StepPlanTest, EverySizeOfRoundIsCutIntoWholeGroups) {
  Plan plan = Stages();
  plan.split = {{1, 2}, {1, 1, 1, 1}, {7, 1}, {2, 3, 3}, {1}};
  for (int micro_batches = 1; micro_batches <= 20; ++micro_batches) {
    for (int groups = 1; groups <= 9; ++groups) {
      const StepPlan round = PlanOfRound(plan, micro_batches, groups);
      EXPECT_EQ(CheckStepPlan(round, 5, micro_batches, 4), absl::OkStatus())
          << micro_batches << " in " << groups;
    }
  }
}

TEST(StepPlanTest, SumsOfALayerAreThoseOfItsSlotsParts) {
  Plan plan = Stages();
  plan.split = {{8}, {8}, {4, 4}, {3, 5}, {3, 3, 2}};
  using Sums = std::vector<IndexRange>;
  EXPECT_EQ(ContributedGroups(plan, 4, 8), (Sums{{0, 4}, {4, 8}}));
  EXPECT_EQ(ContributedGroups(plan, 3, 8), ContributedGroups(plan, 4, 8));
  EXPECT_EQ(ContributedGroups(plan, 2, 8),
            (Sums{{0, 2}, {2, 3}, {3, 4}, {4, 8}}));
  EXPECT_EQ(ContributedGroups(plan, 0, 8),
            (Sums{{0, 2}, {2, 3}, {3, 4}, {4, 6}, {6, 8}}));
  EXPECT_EQ(ContributedGroups(plan, 0, 1), (Sums{{0, 1}}));
  EXPECT_EQ(ContributedGroups(Stages(), 0, 8), (Sums{{0, 8}}));
}

// Halves of 6 groups are no subtrees, those of 8 are.
TEST(StepPlanTest, AShortRoundHasNoMoreSumsThanAFullOne) {
  Plan plan = Stages();
  plan.split = {{8}, {8}, {4, 4}, {8}, {3, 5}};
  using Shares = std::vector<IndexRange>;
  EXPECT_EQ(GroupShares(plan, 2, 8), (Shares{{0, 4}, {4, 8}}));
  EXPECT_EQ(GroupShares(plan, 2, 7), (Shares{{0, 4}, {4, 7}}));
  EXPECT_EQ(GroupShares(plan, 2, 6), (Shares{{0, 4}, {4, 6}}));
  EXPECT_EQ(GroupShares(plan, 2, 5), (Shares{{0, 4}, {4, 5}}));
  EXPECT_EQ(GroupShares(plan, 2, 1), (Shares{{0, 1}}));
  EXPECT_EQ(MostContributions(plan, 2), 2);
  EXPECT_EQ(MostContributionsOfAPart(plan, 2), 1);
  EXPECT_EQ(MostContributions(plan, 3), 1);
  EXPECT_EQ(MostContributions(plan, 4), 4);
  EXPECT_EQ(MostContributionsOfAPart(plan, 4), 2);
  EXPECT_EQ(MostContributions(Stages(), 2), 1);
  EXPECT_EQ(MostContributionsOfAPart(Stages(), 2), 1);
}

TEST(StepPlanTest, NoSizeOfRoundHasMoreSumsThanTheFullOne) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Plan plan = {{}, {{0, 4}}, true};
    std::vector<int>& parts = plan.split.emplace_back();
    parts.resize(1 + random() % 9);
    for (int& part : parts) part = 1 + static_cast<int>(random() % 6);
    const int64_t full =
        std::accumulate(parts.begin(), parts.end(), int64_t{0});
    const auto most = static_cast<size_t>(MostContributions(plan, 0));
    const auto of_part = static_cast<size_t>(MostContributionsOfAPart(plan, 0));
    for (int64_t groups = 1; groups <= full; ++groups) {
      int64_t next = 0;
      for (const IndexRange& share : GroupShares(plan, 0, groups)) {
        EXPECT_EQ(share.begin, next);
        EXPECT_GT(share.size(), 0);
        EXPECT_LE(LargestSubtrees(groups, share).size(), of_part);
        next = share.end;
      }
      EXPECT_EQ(next, groups);
      EXPECT_LE(ContributedGroups(plan, 0, groups).size(), most) << groups;
      EXPECT_LE(GroupShares(plan, 0, groups).size(), parts.size());
    }
    EXPECT_EQ(GroupShares(plan, 0, full).size(), parts.size());
  }
}

TEST(StepPlanTest, AWidthBecomesSharesAsEqualAsCanBe) {
  EXPECT_EQ(SplitOf({1, 1, 1}, 8), (std::vector<int>{3, 3, 2}));
  EXPECT_EQ(SplitOf({3, 5}, 8), (std::vector<int>{3, 5}));
  EXPECT_EQ(SplitOf({3, 5}, 4), (std::vector<int>{2, 2}));
  EXPECT_EQ(SplitOf({1, 1, 1}, 2), (std::vector<int>{1, 1}));
}

TEST(StepPlanTest, WrongPlansAreNamed) {
  const StepPlan good = UniformPlan(Stages(), {2, 2, 2}, 6, 4);
  auto message = [](const StepPlan& plan, int devices = 4) {
    return std::string(CheckStepPlan(plan, 5, 6, devices).message());
  };
  EXPECT_EQ(message(good), "");
  EXPECT_EQ(message(good, 1), "slot 0 has 2 parts for 1 devices");
  StepPlan plan = good;
  plan.stages.forward.pop_back();
  EXPECT_NE(message(plan), "");
  plan = good;
  plan.stages.fused = false;
  plan.stages.forward.push_back({3, 4});
  EXPECT_EQ(message(plan), "the plan has no fused stage");
  plan = good;
  plan.groups = 0;
  EXPECT_EQ(message(plan), "6 micro-batches in 0 groups");
  plan = good;
  plan.look_ahead = 0;
  EXPECT_EQ(message(plan), "look_ahead is 0");
  plan = good;
  plan.shares.pop_back();
  EXPECT_EQ(message(plan), "shares of 4 slots of 5");
  const char not_next[] =
      "slot 3 part 1 has micro-batches 4..5: not the next whole groups";
  plan = good;
  plan.shares[3] = {{0, 2}, {4, 6}};
  EXPECT_EQ(message(plan), not_next);
  plan.shares[3] = {{0, 1}, {1, 6}};  // inside the first group
  EXPECT_EQ(message(plan),
            "slot 3 part 0 has micro-batches 0..0: not the next whole groups");
  plan.shares[3] = {{0, 4}, {4, 4}, {4, 6}};
  EXPECT_NE(message(plan), "");
  plan.shares[3] = {{0, 5}};
  EXPECT_EQ(message(plan), "slot 3 runs 5 of 6 micro-batches");
}

}  // namespace
}  // namespace roundhouse
