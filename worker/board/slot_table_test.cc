// Whose turn it is on the compute thread, and who may take device memory, where
// training slots and samples share a worker.  The feeder's part is the test's.
#include "worker/board/slot_table.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/turns.h"
#include "gtest/gtest.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/slot/test_job.h"

namespace roundhouse::worker {
namespace {

// Refuses, although the count allows it, as a driver may.
class RefusingDevice : public Device {
 public:
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(
      uint64_t bytes, const std::string& what) override {
    if (refuses) return absl::ResourceExhaustedError("the driver has none");
    return inner_->Allocate(bytes, what);
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return inner_->NewStream();
  }
  DeviceMemory memory() const override { return inner_->memory(); }
  uint64_t TakePeak() override { return inner_->TakePeak(); }
  CopyChunks copy_chunks() const override { return inner_->copy_chunks(); }

  bool refuses = true;

 private:
  const std::unique_ptr<Device> inner_ = NewCpuDevice(1 << 30);
};

class SlotTableTest : public testing::Test {
 protected:
  SlotTableTest() {
    const RoundShape shape{{{0, 1}, {2, 3}}, {{4, 4}, {2, 3}, {0, 1}}, 4, 2};
    job_ = std::make_unique<SlotTestJob>(SmallConfig(4, false), shape, 5);
    tables_ = *ReadJobTables(job_->arena(), job_->layout_offset());
    slot_ = job_->MakeRound(1)[0];
    slot_bytes_ = MakeState()->plan.device_bytes();
    sample_bytes_ = NewSample(1)->plan.least_bytes();
    MakeTable(1 << 30);
  }

  void MakeTable(uint64_t memory_bytes) {
    table_.reset();
    device_ = NewCpuDevice(memory_bytes);
    table_ = std::make_unique<SlotTable>(*device_, 0, SlotTable::kMaxRefusal);
  }

  std::unique_ptr<SlotState> MakeState() {
    SlotPlan plan =
        *PlanSlot(slot_, *tables_, job_->arena().size_bytes(), {UINT64_MAX});
    plan.working_bytes = working_bytes_;
    return std::make_unique<SlotState>(++attempt_, 0, slot_, tables_,
                                       std::move(plan));
  }

  // Dispatched; with `ready` its first input is there.
  SlotState* AddSlot(bool ready) {
    EXPECT_EQ(table_->Add(MakeState()), absl::OkStatus());
    SlotState* const slot = table_->slots().back().get();
    if (ready) {
      slot->uploads.front().input.arrival = Arrival::kThere;
    }
    return slot;
  }

  // A slot of another job: what it reads has been published, and its first
  // input and weights are there.
  SlotState* AddOther() {
    slot_.job = SlotTestJob::kJob + 1;
    SlotState* const slot = AddSlot(true);
    slot_.job = SlotTestJob::kJob;
    slot->published = true;
    for (Upload& weights : slot->weights) weights.arrival = Arrival::kThere;
    return slot;
  }

  // One of a backfill job, likewise.
  SlotState* AddBackfill() {
    slot_.turn = kBackfillTurn;
    SlotState* const slot = AddOther();
    slot_.turn = 0;
    return slot;
  }

  bool Take(SlotState* slot, uint64_t bytes) {
    bool taken = false;
    taken = *table_->TryTakeWeights(*slot, bytes) != nullptr;
    return taken;
  }
  // Takes everything that it may come to need.
  bool TakeAll(SlotState* slot) { return Take(slot, slot_bytes_); }

  void End(SlotState* slot) {
    slot->phase = ComputePhase::kComputed;
    slot->ReleaseAll();
    table_->slots().remove_if(
        [&](const auto& one) { return one.get() == slot; });
  }

  std::unique_ptr<SampleState> NewSample(uint64_t number) {
    wire::RunSample command = job_->MakeSample(number, {{1, 2, 3}}, 4);
    SamplePlan plan =
        *PlanSample(command, *tables_, job_->arena(), {UINT64_MAX});
    return std::make_unique<SampleState>(++attempt_, std::move(command),
                                         tables_, std::move(plan));
  }
  void AddSample(uint64_t number) {
    EXPECT_EQ(table_->AddSample(NewSample(number)), absl::OkStatus());
  }

  SlotTable::Work Next() {
    SlotTable::Work work;
    EXPECT_TRUE(table_->TakeWork(work));
    return work;
  }

  // The number of the sample whose turn it is; 0: a slot's.
  uint64_t NextSample() {
    SlotTable::Work work = Next();
    if (work.sample == nullptr) return 0;
    const uint64_t number = work.sample->command.sample;
    table_->EndSample(std::move(work.cache));
    return number;
  }

  // The sample is the next work, but not before `slot` ends.
  void ExpectSampleAfter(uint64_t number, SlotState* slot) {
    SlotTable::Work none;
    EXPECT_FALSE(table_->TakeWork(none));
    End(slot);
    EXPECT_EQ(NextSample(), number);
  }

  // A cache of `bytes` that the next command of sample `number` finds.
  SampleCache CacheOf(uint64_t number, uint64_t bytes) {
    SampleCache cache;
    cache.job = SlotTestJob::kJob;
    cache.sample = number;
    cache.sequences[0] = {*device_->Allocate(bytes, "a cache"), 3, {1, 2}};
    return cache;
  }
  void Keep(uint64_t number, uint64_t bytes) {
    AddSample(number);
    SlotTable::Work work = Next();
    ASSERT_NE(work.sample, nullptr);
    table_->EndSample(CacheOf(number, bytes));
  }
  uint64_t used_bytes() const { return device_->memory().used_bytes; }

  std::unique_ptr<SlotTestJob> job_;
  std::shared_ptr<const JobTables> tables_;
  wire::RunSlot slot_;
  uint64_t attempt_ = 0;
  uint64_t slot_bytes_ = 0, sample_bytes_ = 0;
  uint64_t working_bytes_ = 0;  // of the next slots
  std::unique_ptr<Device> device_;
  std::unique_ptr<SlotTable> table_;
};

TEST_F(SlotTableTest, WhatTheDriverRefusesIsWaitedForWhileAnotherSlotRuns) {
  RefusingDevice device;
  table_ = std::make_unique<SlotTable>(device, /*reserved_bytes=*/0,
                                       /*max_refusal=*/absl::ZeroDuration());
  SlotState* const running = AddSlot(true);
  SlotState* const waiting = AddSlot(true);
  const auto take = [&] {
    absl::Status status;
    const auto taken = table_->TryTakeWeights(*waiting, 64);
    status = taken.status();
    if (taken.ok() && *taken == nullptr) {
      status = absl::UnavailableError("later");
    }
    return status;
  };
  // Nobody runs whose end would bring memory.
  EXPECT_TRUE(absl::IsResourceExhausted(take()));
  running->phase = ComputePhase::kComputing;
  EXPECT_TRUE(absl::IsUnavailable(take()));
  running->phase = ComputePhase::kComputed;
  EXPECT_TRUE(absl::IsUnavailable(take()));
  device.refuses = false;
  EXPECT_EQ(take(), absl::OkStatus());
  End(waiting);
  End(running);
  table_.reset();
}

// Only refusals that follow each other while nobody else runs count.
TEST_F(SlotTableTest, WhatTheDriverRefusedBesideOthersIsNotHeldAgainstASlot) {
  RefusingDevice device;
  table_ = std::make_unique<SlotTable>(device, /*reserved_bytes=*/0,
                                       /*max_refusal=*/absl::Minutes(1));
  SlotState* const slot = AddSlot(true);
  const auto take = [&] {
    const auto taken = table_->TryTakeWeights(*slot, 64);
    EXPECT_TRUE(taken.ok()) << taken.status();
    EXPECT_TRUE(table_->AnyRefusedLately());
    return slot->refused_since_ns;
  };
  const int64_t first_ns = take();
  EXPECT_GT(first_ns, 0);
  EXPECT_EQ(take(), first_ns);
  SlotState* const running = AddSlot(true);
  running->phase = ComputePhase::kComputing;
  const int64_t beside_ns = take();
  EXPECT_GT(beside_ns, first_ns);
  EXPECT_GT(take(), beside_ns);
  End(running);
  const int64_t alone_ns = slot->refused_since_ns;
  EXPECT_EQ(take(), alone_ns);
  slot->refused_last_ns -= 2'000'000'000;
  EXPECT_GT(take(), alone_ns);
  End(slot);
  table_.reset();
}

TEST_F(SlotTableTest, ASlotWhoseInputIsThereGoesFirst) {
  AddSample(7);
  SlotState* const slot = AddSlot(true);
  EXPECT_EQ(Next().slot, slot);
  EXPECT_EQ(slot->phase, ComputePhase::kComputing);
  EXPECT_EQ(NextSample(), 7u);
}

TEST_F(SlotTableTest, ASampleGoesWhileASlotWaitsForItsInput) {
  SlotState* const slot = AddSlot(false);
  AddSample(7);
  EXPECT_EQ(NextSample(), 7u);
  EXPECT_EQ(slot->phase, ComputePhase::kQueued);
  slot->uploads.front().input.arrival = Arrival::kThere;
  EXPECT_EQ(Next().slot, slot);
}

TEST_F(SlotTableTest, AnotherJobsSlotOvertakesOneThatWaitsForItsInput) {
  SlotState* const first = AddSlot(false);
  SlotState* const other = AddOther();
  EXPECT_EQ(Next().slot, other);
  first->uploads.front().input.arrival = Arrival::kThere;
  End(other);
  EXPECT_EQ(Next().slot, first);
}

TEST_F(SlotTableTest, AnotherJobsSlotOvertakesOneThatWaitsForItsWeights) {
  SlotState* const first = AddSlot(true);
  SlotState* const other = AddOther();
  EXPECT_EQ(Next().slot, other);
  End(other);
  // Its first weights can be awaited while it computes: nobody else is ready.
  EXPECT_EQ(Next().slot, first);
}

TEST_F(SlotTableTest, AReadySlotIsNotOvertaken) {
  SlotState* const first = AddSlot(true);
  for (Upload& weights : first->weights) weights.arrival = Arrival::kThere;
  SlotState* const other = AddOther();
  EXPECT_EQ(Next().slot, first);
  End(first);
  EXPECT_EQ(Next().slot, other);
}

TEST_F(SlotTableTest, OfReadySlotsThatOfTheLowestTurnGoes) {
  slot_.turn = 5;
  SlotState* const first = AddSlot(true);
  for (Upload& weights : first->weights) weights.arrival = Arrival::kThere;
  slot_.turn = 4;
  SlotState* const other = AddOther();
  EXPECT_EQ(Next().slot, other);
  EXPECT_FALSE(other->fills_bubble);  // the first one could have gone
  End(other);
  EXPECT_EQ(Next().slot, first);
}

// Whoever overtakes must not wait for what may come after the one overtaken.
TEST_F(SlotTableTest, OnlyASlotWithAllItsInputsPublishedOvertakes) {
  SlotState* const first = AddSlot(false);
  SlotState* const other = AddOther();
  other->published = false;
  AddSample(7);
  EXPECT_EQ(NextSample(), 7u);  // neither slot can go
  other->published = true;
  EXPECT_EQ(Next().slot, other);
  EXPECT_TRUE(other->fills_bubble);
  End(other);
  End(first);
}

TEST_F(SlotTableTest, SlotsOfOneJobNeverOvertake) {
  AddSlot(false);
  slot_.job = SlotTestJob::kJob + 1;
  AddSlot(false);
  SlotState* const second = AddOther();
  AddSample(7);
  EXPECT_EQ(NextSample(), 7u);
  EXPECT_EQ(second->phase, ComputePhase::kQueued);
}

TEST_F(SlotTableTest, ASlotOvertakesOnlyWithinMemoryThatNobodyHas) {
  MakeTable(2 * slot_bytes_ - 64);
  SlotState* const first = AddSlot(false);
  ASSERT_TRUE(Take(first, slot_bytes_ / 2 / 64 * 64 + 64));
  SlotState* const other = AddOther();
  EXPECT_EQ(Next().slot, other);
  // All that it planned is its own, whatever the older one would take.
  EXPECT_FALSE(TakeAll(first));
  EXPECT_TRUE(TakeAll(other));
  End(other);
  End(first);

  SlotState* const full = AddSlot(true);  // and lacks its weights
  ASSERT_TRUE(TakeAll(full));
  AddOther();
  EXPECT_EQ(Next().slot, full);
}

TEST_F(SlotTableTest, RoomIsLeftForWhatComputesTheSlotsThatAreHere) {
  constexpr uint64_t kWorking = 64 << 10;
  MakeTable(2 * slot_bytes_ + kWorking);
  working_bytes_ = kWorking;
  SlotState* const first = AddSlot(true);
  EXPECT_FALSE(Take(first, 2 * slot_bytes_ + 64));
  EXPECT_TRUE(TakeAll(first));
  // One computes at a time: the room is there once.
  SlotState* const second = AddSlot(true);
  EXPECT_TRUE(TakeAll(second));
  // It needs none itself, and leaves it to the older ones.
  working_bytes_ = 0;
  SlotState* const third = AddSlot(true);
  EXPECT_FALSE(Take(third, 64));
  EXPECT_EQ(Next().slot, first);
  EXPECT_FALSE(Take(third, 64));
  End(first);
  End(second);
  EXPECT_TRUE(TakeAll(third));
  End(third);
}

TEST_F(SlotTableTest, AnOvertakerLeavesRoomForWhatComputesTheOneOvertaken) {
  constexpr uint64_t kWorking = 64 << 10;
  for (const bool room : {false, true}) {
    MakeTable(2 * slot_bytes_ + kWorking - (room ? 0 : 64));
    working_bytes_ = kWorking;
    SlotState* const first = AddSlot(true);  // and lacks its weights
    ASSERT_TRUE(TakeAll(first));
    working_bytes_ = 0;
    SlotState* const other = AddOther();
    EXPECT_EQ(Next().slot, room ? other : first);
    End(first);
    End(other);
  }
}

TEST_F(SlotTableTest, WhatIsKeptOfASampleGoesWhenItsRoomIsComputedIn) {
  working_bytes_ = sample_bytes_;
  MakeTable(slot_bytes_ + sample_bytes_);
  SlotState* const slot = AddSlot(false);
  ASSERT_TRUE(TakeAll(slot));
  Keep(7, 64);
  EXPECT_EQ(used_bytes(), DeviceBytes(slot_bytes_) + 64);
  slot->uploads.front().input.arrival = Arrival::kThere;
  EXPECT_EQ(Next().slot, slot);
  EXPECT_EQ(used_bytes(), DeviceBytes(slot_bytes_));
  End(slot);
}

TEST_F(SlotTableTest, ASampleIsPassedOverEightTimes) {
  AddSample(7);
  AddSample(8);
  for (int turn = 0; turn < kMaxPassedOver; ++turn) {
    SlotState* const slot = AddSlot(true);
    ASSERT_EQ(Next().slot, slot) << turn;
    End(slot);
  }
  SlotState* const slot = AddSlot(true);
  EXPECT_EQ(NextSample(), 7u);
  // Not due yet: its turns count from now on.
  EXPECT_EQ(Next().slot, slot);
  EXPECT_EQ(NextSample(), 8u);
}

TEST_F(SlotTableTest, ASampleTakesOnlyWhatSlotsLeaveIt) {
  MakeTable(slot_bytes_ + sample_bytes_ - 1);
  SlotState* const slot = AddSlot(false);
  AddSample(7);
  // The slot may come to need too much; without it there is enough.
  ExpectSampleAfter(7, slot);
}

TEST_F(SlotTableTest, SlotsWaitForWhatAComputingSampleHas) {
  MakeTable(slot_bytes_ + sample_bytes_ - 1);
  AddSample(7);
  SlotTable::Work work = Next();
  ASSERT_NE(work.sample, nullptr);
  SlotState* const slot = AddSlot(true);
  EXPECT_FALSE(TakeAll(slot));
  table_->EndSample(SampleCache());
  EXPECT_TRUE(TakeAll(slot));
  End(slot);
}

// Memory for one slot and the sample, but not for two slots and the sample.
TEST_F(SlotTableTest, SlotsThatComeAfterADueSampleAreBehindIt) {
  ASSERT_GT(slot_bytes_, sample_bytes_);
  MakeTable(slot_bytes_ + sample_bytes_);
  AddSample(7);
  SlotState* older = AddSlot(true);
  for (int turn = 0; turn < kMaxPassedOver - 1; ++turn) {
    ASSERT_EQ(Next().slot, older);
    SlotState* const next = AddSlot(true);
    End(older);
    older = next;
  }
  SlotState* const other = AddSlot(true);
  ASSERT_EQ(Next().slot, older);
  // Due from here on, but two slots need all memory.
  SlotState* const behind = AddSlot(true);
  ASSERT_EQ(Next().slot, other);
  EXPECT_TRUE(TakeAll(older));
  EXPECT_FALSE(TakeAll(behind));
  End(older);
  EXPECT_TRUE(TakeAll(other));
  EXPECT_FALSE(TakeAll(behind));
  EXPECT_EQ(NextSample(), 7u);
  EXPECT_EQ(Next().slot, behind);
  EXPECT_FALSE(TakeAll(behind));
  End(other);
  EXPECT_TRUE(TakeAll(behind));
  End(behind);
}

// No slot that is behind is computed before the sample, even if the sample has
// to wait for memory.
TEST_F(SlotTableTest, ADueSampleWaitsForOlderSlotsOnly) {
  MakeTable(slot_bytes_ + sample_bytes_ - 1);
  AddSample(7);
  SlotState* older = AddSlot(true);
  for (int turn = 0; turn < kMaxPassedOver; ++turn) {
    ASSERT_EQ(Next().slot, older);
    if (turn + 1 == kMaxPassedOver) break;
    SlotState* const next = AddSlot(true);
    End(older);
    older = next;
  }
  SlotState* const behind = AddSlot(true);
  ExpectSampleAfter(7, older);
  EXPECT_EQ(Next().slot, behind);
}

TEST_F(SlotTableTest, WeightsStayWhereThereIsMemoryForAll) {
  const uint64_t resident = NewSample(1)->plan.resident_bytes();
  ASSERT_GT(resident, sample_bytes_);
  for (const auto& [bytes, expected] :
       {std::pair(resident, true), std::pair(resident - 1, false)}) {
    MakeTable(bytes);
    AddSample(1);
    SlotTable::Work work = Next();
    ASSERT_NE(work.sample, nullptr);
    EXPECT_EQ(work.sample->resident, expected);
    table_->EndSample(SampleCache());
  }
}

TEST_F(SlotTableTest, ACacheIsKeptForItsSampleOnly) {
  Keep(7, 128);
  EXPECT_EQ(used_bytes(), 128u);
  AddSample(7);
  SlotTable::Work work = Next();
  ASSERT_EQ(work.cache.sequences.size(), 1u);
  EXPECT_EQ(work.cache.sequences[0].tokens, (std::vector<int32_t>{1, 2}));
  table_->EndSample(std::move(work.cache));
  AddSample(8);
  work = Next();
  EXPECT_TRUE(work.cache.sequences.empty());
  EXPECT_EQ(used_bytes(), 0u);
}

TEST_F(SlotTableTest, ASlotThatNeedsTheMemoryDropsTheCache) {
  MakeTable(slot_bytes_ + sample_bytes_);
  Keep(7, 128);
  SlotState* const slot = AddSlot(true);
  EXPECT_TRUE(TakeAll(slot));
  EXPECT_EQ(used_bytes(), slot_bytes_ + 128);
  SlotState* const second = AddSlot(true);
  EXPECT_FALSE(TakeAll(second));  // older slots need it: the cache may stay
  EXPECT_EQ(used_bytes(), slot_bytes_ + 128);
  bool taken = false;
  taken = *table_->TryTakeWeights(*second, sample_bytes_ - 64) != nullptr;
  EXPECT_TRUE(taken);
  EXPECT_EQ(used_bytes(), slot_bytes_ + sample_bytes_ - 64);
  End(slot);
  End(second);
}

TEST_F(SlotTableTest, ForgettingTheJobDropsTheCache) {
  Keep(7, 128);
  table_->ForgetSample(SlotTestJob::kJob + 1);
  EXPECT_EQ(used_bytes(), 128u);
  table_->ForgetSample(SlotTestJob::kJob);
  EXPECT_EQ(used_bytes(), 0u);
  AddSample(8);
  SlotTable::Work work = Next();
  ASSERT_NE(work.sample, nullptr);
  table_->ForgetSample(SlotTestJob::kJob);
  table_->EndSample(CacheOf(8, 128));
  EXPECT_EQ(used_bytes(), 0u);
}

TEST_F(SlotTableTest, OneSampleTooManyIsRefused) {
  for (size_t i = 1; i <= kMaxSampleCommands; ++i) AddSample(i);
  const auto refused = [&] {
    const absl::Status status = table_->AddSample(NewSample(9));
    EXPECT_NE(std::string(status.message()).find("sample 9: 4 samples"),
              std::string::npos)
        << status;
    return status.code() == absl::StatusCode::kResourceExhausted;
  };
  EXPECT_TRUE(refused());
  const SlotTable::Work work = Next();
  EXPECT_TRUE(refused());  // one computes
  table_->EndSample(SampleCache());
  EXPECT_EQ(table_->AddSample(NewSample(9)), absl::OkStatus());
}

// --- backfill ---

TEST_F(SlotTableTest, ABackfillSlotIsItsThreadsAlone) {
  SlotState* const backfill = AddBackfill();
  SlotTable::Work work;
  EXPECT_FALSE(table_->TakeWork(work));
  SlotState* const slot = AddSlot(true);
  EXPECT_EQ(Next().slot, slot);
  EXPECT_EQ(table_->TakeBackfill(), backfill);
  EXPECT_TRUE(table_->HasOthers());
  AddBackfill();
  EXPECT_EQ(table_->TakeBackfill(), nullptr);  // one at a time
  End(slot);
  EXPECT_FALSE(table_->HasOthers());
}

TEST_F(SlotTableTest, ABackfillSlotThatWaitsForAWordDoesNotBegin) {
  SlotState* const backfill = AddBackfill();
  backfill->published = false;
  EXPECT_EQ(table_->TakeBackfill(), nullptr);
}

TEST_F(SlotTableTest, ABackfillSlotBeginsWithMemoryForAllOrNone) {
  working_bytes_ = 100;
  MakeTable(2 * slot_bytes_ + 199);  // both work at the same time
  SlotState* const backfill = AddBackfill();
  AddSlot(true);
  EXPECT_FALSE(Take(backfill, 64));
  MakeTable(2 * slot_bytes_ + 200);
  SlotState* const again = AddBackfill();
  SlotState* const slot = AddSlot(true);
  EXPECT_TRUE(Take(again, 64));
  EXPECT_TRUE(TakeAll(slot));
  EXPECT_TRUE(Take(again, slot_bytes_ - 64));
}

// Whoever comes later waits for its end, and it does not wait for them.
TEST_F(SlotTableTest, ABackfillSlotThatHasMemoryGetsTheRest) {
  working_bytes_ = 100;
  MakeTable(2 * slot_bytes_ + 199);
  SlotState* const backfill = AddBackfill();
  EXPECT_TRUE(Take(backfill, 64));
  SlotState* const slot = AddSlot(false);
  EXPECT_FALSE(TakeAll(slot));
  EXPECT_TRUE(Take(slot, slot_bytes_ / 2));
  EXPECT_TRUE(Take(backfill, slot_bytes_ - 64));
  EXPECT_EQ(table_->TakeBackfill(), backfill);
  EXPECT_FALSE(Take(slot, slot_bytes_ - slot_bytes_ / 2));
  End(backfill);
  EXPECT_TRUE(Take(slot, slot_bytes_ - slot_bytes_ / 2));
}

// Until it has some, it counts for nobody.
TEST_F(SlotTableTest, ABackfillSlotWithoutMemoryIsInNobodysWay) {
  MakeTable(slot_bytes_);
  AddBackfill();
  SlotState* const slot = AddSlot(true);
  EXPECT_TRUE(TakeAll(slot));
}

TEST_F(SlotTableTest, SamplesAreDueAlsoBehindBackfillSlots) {
  AddSample(1);
  for (int i = 0; i <= kMaxPassedOver; ++i) {
    SlotState* const backfill = AddBackfill();
    if (backfill->behind_sample) break;
    ASSERT_EQ(table_->TakeBackfill(), backfill);
    End(backfill);
  }
  SlotState* const behind = AddBackfill();
  EXPECT_TRUE(behind->behind_sample);
  EXPECT_EQ(table_->TakeBackfill(), nullptr);
  EXPECT_EQ(NextSample(), 1u);
}

}  // namespace
}  // namespace roundhouse::worker
