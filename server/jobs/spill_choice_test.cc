#include "server/jobs/spill_choice.h"

#include <random>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

SpillCandidate Resting(int64_t number, int minute, uint64_t bytes) {
  return {.number = number,
          .rests = true,
          .since = absl::UnixEpoch() + absl::Minutes(minute),
          .bytes = bytes};
}

SpillCandidate Running(int64_t number, double turn, uint64_t bytes) {
  return {.number = number, .turn = {.user = turn}, .bytes = bytes};
}

const SpillNeed kNormalNeeds = {.bytes = 10};
const SpillNeed kUrgentNeeds = {Priority::kUrgent, 10};

TEST(SpillChoiceTest, TheLongestPausedGoesFirst) {
  EXPECT_EQ(ChooseSpill({Resting(1, 7, 10), Resting(2, 3, 10)}, kNormalNeeds),
            1u);
}

TEST(SpillChoiceTest, OneThatIsEnoughGoesBeforeOneThatIsNot) {
  EXPECT_EQ(ChooseSpill({Resting(1, 1, 3), Resting(2, 2, 12)}, kNormalNeeds),
            1u);
  EXPECT_EQ(ChooseSpill({Resting(1, 1, 6), Resting(2, 2, 6)}, kNormalNeeds),
            0u);
}

TEST(SpillChoiceTest, NobodyGivesWayInVain) {
  EXPECT_EQ(ChooseSpill({Resting(1, 1, 6), Resting(2, 2, 3)}, kNormalNeeds),
            std::nullopt);
  EXPECT_EQ(ChooseSpill({}, kUrgentNeeds), std::nullopt);
}

TEST(SpillChoiceTest, RunningJobsGiveWayToAHigherClassAlone) {
  EXPECT_EQ(ChooseSpill({Running(1, 1, 50)}, kNormalNeeds), std::nullopt);
  EXPECT_EQ(ChooseSpill({Running(1, 1, 50)}, kUrgentNeeds), 0u);
  SpillCandidate urgent = Running(1, 1, 50);
  urgent.priority = Priority::kUrgent;
  EXPECT_EQ(ChooseSpill({urgent}, kUrgentNeeds), std::nullopt);
}

TEST(SpillChoiceTest, TheLowestClassGivesWayFirst) {
  SpillCandidate backfill = Running(1, 1, 50);
  backfill.priority = Priority::kBackfill;
  EXPECT_EQ(ChooseSpill({Running(2, 9, 50), backfill}, kNormalNeeds), 1u);
  EXPECT_EQ(ChooseSpill({Running(2, 9, 50), backfill}, kUrgentNeeds), 1u);
  EXPECT_EQ(ChooseSpill({backfill}, {Priority::kBackfill, 10}), std::nullopt);
  const SpillNeed kPlace = {.priority = Priority::kNormal};
  EXPECT_EQ(ChooseSpill({Running(2, 9, 50), backfill}, kPlace), 1u);
  backfill.bytes = 9;
  EXPECT_EQ(ChooseSpill({Running(2, 9, 50), backfill}, kNormalNeeds),
            std::nullopt)
      << "its memory alone is not enough for a normal job";
  EXPECT_EQ(ChooseSpill({Running(2, 9, 50), backfill}, kUrgentNeeds), 0u);
}

TEST(SpillChoiceTest, OfRunningJobsTheOneThatWouldStartLast) {
  EXPECT_EQ(
      ChooseSpill({Running(1, 1, 50), Running(2, 3, 50), Running(3, 2, 50)},
                  kUrgentNeeds),
      1u);
  EXPECT_EQ(ChooseSpill({Running(1, 1, 50), Running(2, 1, 50)}, kUrgentNeeds),
            1u)
      << "the younger of equals";
  EXPECT_EQ(ChooseSpill({Running(1, 9, 50), Resting(2, 1, 50)}, kUrgentNeeds),
            1u)
      << "those that were told to pause go before";
}

SpillCandidate OnBase(int64_t number, uint64_t bytes) {
  SpillCandidate job = Running(number, 1, bytes);
  job.priority = Priority::kBackfill;
  job.base = "b";
  job.base_bytes = 50;
  return job;
}

TEST(SpillChoiceTest, ABaseIsGivenBackByTheLastThatHasIt) {
  EXPECT_EQ(ChooseSpill({OnBase(1, 2)}, kNormalNeeds), 0u);
  SpillCandidate stays = OnBase(2, 20);
  stays.stays = true;
  EXPECT_EQ(ChooseSpill({OnBase(1, 2), stays}, kNormalNeeds), std::nullopt);
  SpillCandidate normal = OnBase(2, 20);
  normal.priority = Priority::kNormal;
  EXPECT_EQ(ChooseSpill({OnBase(1, 2), normal}, kNormalNeeds), std::nullopt);
  SpillNeed same_base = kNormalNeeds;
  same_base.base = "b";
  EXPECT_EQ(ChooseSpill({OnBase(1, 2)}, same_base), std::nullopt);
  // Both of them together are enough, neither of them alone.
  EXPECT_EQ(ChooseSpill({OnBase(1, 2), OnBase(2, 2)}, kNormalNeeds), 1u);
  EXPECT_EQ(ChooseSpill({OnBase(1, 2), OnBase(2, 2)}, same_base), std::nullopt);
}

TEST(SpillChoiceTest, APausedJobHasNoPlaceToGive) {
  const SpillNeed kPlace = {.priority = Priority::kUrgent};
  EXPECT_EQ(ChooseSpill({Resting(1, 1, 50)}, kPlace), std::nullopt);
  EXPECT_EQ(ChooseSpill({Resting(1, 1, 50), Running(2, 1, 0)}, kPlace), 1u);
}

// Spilled one after the other, those that are chosen give what is needed.
TEST(SpillChoiceTest, WhoeverIsChosenIsEnoughInTheEnd) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    std::vector<SpillCandidate> candidates;
    uint64_t all = 0;
    for (uint64_t n = random() % 6; n > 0; --n) {
      const auto number = static_cast<int64_t>(n);
      const uint64_t bytes = random() % 8;
      candidates.push_back(random() % 2 == 0
                               ? Resting(number, random() % 5, bytes)
                               : Running(number, random() % 3, bytes));
      all += bytes;
    }
    SpillNeed need = {Priority::kUrgent, 1 + random() % 20};
    const bool enough = !candidates.empty() && all >= need.bytes;
    uint64_t given = 0;
    while (given < need.bytes) {
      const auto chosen =
          ChooseSpill(candidates, {need.priority, need.bytes - given});
      ASSERT_EQ(chosen.has_value(), enough);
      if (!enough) break;
      given += candidates[*chosen].bytes;
      candidates.erase(candidates.begin() + static_cast<int64_t>(*chosen));
    }
  }
}

}  // namespace
}  // namespace roundhouse
