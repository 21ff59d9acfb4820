#include "server/observe/slot_history.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr int64_t kMs = 1'000'000;

SlotFacts Slot(const std::string& job, int64_t step = 1,
               SlotKind kind = SlotKind::kForward, LayerRange layers = {0, 1}) {
  return {.job = job, .step = step, .kind = kind, .layers = layers};
}

// From `from_ms` to `to_ms`, computing all the time.
void RunSlot(SlotHistory& history, const SlotFacts& slot, int64_t from_ms,
             int64_t to_ms) {
  history.Started(slot, from_ms * kMs, 0);
  history.Ended(to_ms * kMs, 0);
}

TEST(SlotHistoryTest, SlotsAndTheGapsBetweenThem) {
  SlotHistory history(0);
  RunSlot(history, Slot("job-1", 7, SlotKind::kBackward, {2, 3}), 100, 300);
  RunSlot(history, Slot("job-1", 8), 450, 700);
  const auto blocks = history.Recent(1000 * kMs);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].job, "job-1");
  EXPECT_EQ(blocks[0].started_ns, 100 * kMs);
  EXPECT_EQ(blocks[0].ended_ns, 300 * kMs);
  EXPECT_EQ(blocks[0].compute_ns, 200 * kMs);
  EXPECT_EQ(blocks[0].slots, 1);
  EXPECT_EQ(blocks[0].passes, PassBit(SlotKind::kBackward));
  EXPECT_EQ(blocks[0].first_step, 7);
  EXPECT_EQ(blocks[0].layers, (LayerRange{2, 3}));
  EXPECT_EQ(blocks[1].started_ns, 450 * kMs);
}

TEST(SlotHistoryTest, PartsOfABackfillSlotLieInWaitsOfAnother) {
  SlotHistory history(0);
  history.Started(Slot("job-1"), 0, 0);
  history.Backfilled(Slot("job-2", 3), 10 * kMs, 20 * kMs, true);
  history.Backfilled(Slot("job-2", 3), 30 * kMs, 35 * kMs, false);
  history.Ended(50 * kMs, 15 * kMs);
  const auto blocks = history.Recent(60 * kMs);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].job, "job-1");
  EXPECT_EQ(blocks[0].compute_ns, 35 * kMs);
  EXPECT_EQ(blocks[1].job, "job-2");
  EXPECT_EQ(blocks[1].started_ns, 10 * kMs);
  EXPECT_EQ(blocks[1].ended_ns, 35 * kMs);
  EXPECT_EQ(blocks[1].compute_ns, 15 * kMs);
  EXPECT_EQ(blocks[1].slots, 1);
}

TEST(SlotHistoryTest, WaitsWithinASlotAreNoComputation) {
  SlotHistory history(0);
  history.Started(Slot("job-1"), 0, 0);
  history.Computed(100 * kMs, 30 * kMs);
  history.Ended(200 * kMs, 500 * kMs);  // cannot be
  EXPECT_EQ(history.Recent(200 * kMs).at(0).compute_ns, 70 * kMs);
}

TEST(SlotHistoryTest, ShortSlotsOfAJobAreOneBlock) {
  SlotHistory history(0);
  RunSlot(history, Slot("job-1", 5, SlotKind::kForward, {2, 3}), 0, 10);
  RunSlot(history, Slot("job-2"), 10, 20);
  RunSlot(history, Slot("job-1", 4, SlotKind::kBackward, {0, 2}), 20, 40);
  RunSlot(history, Slot("job-2"), 50, 60);
  RunSlot(history, Slot("job-2"), 99, 111);   // too long after the block began
  RunSlot(history, Slot("job-2"), 111, 112);  // in the next period
  const auto blocks = history.Recent(200 * kMs);
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_EQ(blocks[0].ended_ns, 40 * kMs);
  EXPECT_EQ(blocks[0].compute_ns, 30 * kMs);
  EXPECT_EQ(blocks[0].slots, 2);
  EXPECT_EQ(blocks[0].passes,
            PassBit(SlotKind::kForward) | PassBit(SlotKind::kBackward));
  EXPECT_EQ(blocks[0].first_step, 4);
  EXPECT_EQ(blocks[0].last_step, 5);
  EXPECT_EQ(blocks[0].layers, (LayerRange{0, 3}));
  EXPECT_EQ(blocks[1].started_ns, 10 * kMs);
  EXPECT_EQ(blocks[1].ended_ns, 60 * kMs);
  EXPECT_EQ(blocks[1].slots, 2);
  EXPECT_EQ(blocks[2].slots, 1);
  EXPECT_EQ(blocks[3].slots, 1);
}

TEST(SlotHistoryTest, TheOneUnderWayEndsNow) {
  SlotHistory history(0);
  history.Started(Slot("job-1"), 100 * kMs, 0);
  history.Computed(150 * kMs, 20 * kMs);
  const auto blocks = history.Recent(170 * kMs);
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].ended_ns, 170 * kMs);
  EXPECT_EQ(blocks[0].compute_ns, 50 * kMs);
  // A worker's clock reading may be newer than the daemon's.
  EXPECT_EQ(history.Recent(120 * kMs).at(0).ended_ns, 150 * kMs);
}

TEST(SlotHistoryTest, ASlotThatWasGivenUpEndsThen) {
  SlotHistory history(0);
  history.GaveUp(0);  // nothing
  history.Started(Slot("job-1"), 100 * kMs, 0);
  history.GaveUp(300 * kMs);
  // The next one began without a word about this one: up to its wait.
  history.Started(Slot("job-2"), 400 * kMs, 0);
  history.Started(Slot("job-2"), 800 * kMs, 100 * kMs);
  const auto blocks = history.Recent(900 * kMs);
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0].ended_ns, 300 * kMs);
  EXPECT_EQ(blocks[1].ended_ns, 700 * kMs);
  // Nothing is kept of a slot that nobody began.
  history.GaveUp(900 * kMs);
  history.Ended(950 * kMs, 0);
  EXPECT_EQ(history.Recent(950 * kMs).size(), 3u);
}

TEST(SlotHistoryTest, AMinuteIsKept) {
  SlotHistory history(0);
  for (int second = 0; second < 200; ++second) {
    RunSlot(history, Slot("job-1"), 1000 * second, 1000 * second + 500);
  }
  EXPECT_EQ(history.Recent(199'500 * kMs).size(), 61u);
  EXPECT_EQ(history.Recent(229'500 * kMs).size(), 31u);
  EXPECT_EQ(history.since_ns(), 0);
}

// Slots of 1 ms by turns; what is left after 200 s of it.
std::vector<SlotBlock> Alternate(SlotHistory& history, int jobs) {
  for (int i = 0; i < 200'000; ++i) {
    RunSlot(history, Slot(std::string(1, static_cast<char>('a' + i % jobs))), i,
            i + 1);
  }
  return history.Recent(200'000 * kMs);
}

TEST(SlotHistoryTest, TwoJobsNeverLoseBlocks) {
  for (const int jobs : {1, 2}) {
    SlotHistory history(0);
    int64_t slots = 0;
    for (const SlotBlock& block : Alternate(history, jobs)) {
      slots += block.slots;
    }
    EXPECT_EQ(history.since_ns(), 0);
    EXPECT_NEAR(static_cast<double>(slots), 60'000, 200);
  }
}

TEST(SlotHistoryTest, ManyJobsLoseTheOldestAndItSaysSo) {
  SlotHistory history(0);
  const auto blocks = Alternate(history, 10);
  ASSERT_EQ(blocks.size(), kMaxSlotBlocks);
  EXPECT_GT(history.since_ns(), 185'000 * kMs);
  EXPECT_LT(history.since_ns(), 190'000 * kMs);
  for (size_t i = 1; i < blocks.size(); ++i) {
    EXPECT_LE(blocks[i - 1].started_ns, blocks[i].started_ns);
  }
  EXPECT_GE(blocks.front().ended_ns, history.since_ns() - kSlotBlockNs);
}

}  // namespace
}  // namespace roundhouse
