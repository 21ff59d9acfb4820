// What a worker's threads wait for at the board, and that they meet there.
#include "worker/board/slot_board.h"

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/slot/test_job.h"

namespace roundhouse::worker {
namespace {

// Refuses memory, although the count allows it, as a driver may.
class RefusingDevice : public Device {
 public:
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(
      uint64_t bytes, const std::string& what) override {
    if (refusals_left-- > 0) return absl::ResourceExhaustedError("none");
    return inner_->Allocate(bytes, what);
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return inner_->NewStream();
  }
  DeviceMemory memory() const override { return inner_->memory(); }
  uint64_t TakePeak() override { return inner_->TakePeak(); }
  CopyChunks copy_chunks() const override { return inner_->copy_chunks(); }

  std::atomic<int> refusals_left{0};

 private:
  const std::unique_ptr<Device> inner_ = NewCpuDevice(1 << 30);
};

class NoWatch final : public SlotBoard::WaitWatch {
 public:
  void Begin() override {}
  void End() override {}
};

class SlotBoardTest : public testing::Test {
 protected:
  SlotBoardTest() {
    tables_ = *ReadJobTables(job_->arena(), job_->layout_offset());
    round_ = job_->MakeRound(1);
  }

  // Dispatched, as attempt `attempt`.
  absl::Status Add(uint64_t attempt, const wire::RunSlot& slot) {
    SlotPlan plan =
        *PlanSlot(slot, *tables_, job_->arena().size_bytes(), {UINT64_MAX});
    return board_.Add(std::make_unique<SlotState>(attempt, 0, slot, tables_,
                                                  std::move(plan)));
  }
  const wire::RunSlot& forward() const { return round_.front(); }
  const wire::RunSlot& backward() const { return round_.back(); }

  // All that it begins has arrived.
  FeedStep Look() {
    FeedStep step;
    board_.LookAtSlots(feed_, step);
    for (const BegunUpload& upload : step.uploads) {
      board_.EndUpload(*upload.slot, upload.name, absl::OkStatus());
    }
    return step;
  }
  // The slot computes.
  Slot* Begin(const wire::RunSlot& slot) {
    job_->RaiseInputs();
    job_->RaiseVersions();
    EXPECT_EQ(Add(1, slot), absl::OkStatus());
    Look();
    return board_.NextToCompute(watch_).slot;
  }

  const std::unique_ptr<SlotTestJob> job_ = std::make_unique<SlotTestJob>(
      SmallConfig(4, false),
      RoundShape{{{0, 1}, {2, 3}}, {{4, 4}, {2, 3}, {0, 1}}, 4, 2}, 5);
  std::shared_ptr<const JobTables> tables_;
  std::vector<wire::RunSlot> round_;
  wire::Doorbell bell_{};
  RefusingDevice device_;
  SlotBoard board_{device_, bell_};
  NoWatch watch_;
  UploadFeed feed_{job_->arena(), bell_};
};

TEST_F(SlotBoardTest, StopEndsTheWaitForWork) {
  ASSERT_EQ(Add(1, forward()), absl::OkStatus());
  auto next = std::async(std::launch::async,
                         [&] { return board_.NextToCompute(watch_); });
  board_.Stop();
  const SlotBoard::Work work = next.get();
  EXPECT_EQ(work.slot, nullptr);
  EXPECT_EQ(work.sample, nullptr);
}

TEST_F(SlotBoardTest, WhatHasArrivedIsNotWaitedFor) {
  Slot* const slot = Begin(forward());
  ASSERT_NE(slot, nullptr);
  int64_t waited_ns = 0;
  const auto input = board_.AwaitUpload(*slot, {UploadName::Kind::kInput, 0},
                                        watch_, &waited_ns);
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_NE(input->buffer, nullptr);
  EXPECT_GT(input->there_ns, 0);
  EXPECT_EQ(waited_ns, 0);
  board_.EndCompute(*slot, absl::CancelledError("over"), {});
}

TEST_F(SlotBoardTest, AWithdrawalEndsTheWaitAndTheSlot) {
  Slot* const slot = Begin(forward());
  ASSERT_NE(slot, nullptr);
  auto last = std::async(std::launch::async, [&] {
    int64_t waited_ns = 0;
    const size_t index = slot->command.micro_batches.size() - 1;
    const auto input = board_.AwaitUpload(
        *slot, {UploadName::Kind::kInput, index}, watch_, &waited_ns);
    return input.status();
  });
  board_.Withdraw(1);
  EXPECT_TRUE(absl::IsCancelled(last.get()));
  EXPECT_TRUE(board_.GivenUp(*slot));
  EXPECT_TRUE(Look().ended.empty());  // it computes
  board_.EndCompute(*slot, absl::CancelledError("given up"), {});
  const FeedStep step = Look();
  ASSERT_EQ(step.ended.size(), 1u);
  EXPECT_TRUE(step.ended[0]->withdrawn);
  EXPECT_EQ(step.ended[0]->failure, absl::OkStatus());
  EXPECT_EQ(device_.memory().used_bytes, 0u);
}

// By the compute thread: nothing that it waits for wakes it.
TEST_F(SlotBoardTest, WhatTheDriverRefusesIsAskedForAgain) {
  Slot* const slot = Begin(forward());
  ASSERT_NE(slot, nullptr);
  device_.refusals_left = 3;
  int64_t waited_ns = 0;
  const auto taken =
      board_.AwaitBuffer(*slot, {PoolName::Kind::kOutputs}, watch_, &waited_ns);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_NE(taken->buffer, nullptr);
  EXPECT_TRUE(taken->fresh);
  EXPECT_FALSE(taken->awaited_download);
  EXPECT_GT(waited_ns, 0);
  EXPECT_LT(device_.refusals_left, 0);
  board_.EndCompute(*slot, absl::CancelledError("over"), {});
}

TEST_F(SlotBoardTest, AFullPoolIsWaitedForAsADownload) {
  Slot* const slot = Begin(forward());
  ASSERT_NE(slot, nullptr);
  const PoolName pool{PoolName::Kind::kOutputs};
  int64_t waited_ns = 0;
  DeviceBuffer* last = nullptr;
  for (uint64_t i = 0; i < slot->plan.outputs.count; ++i) {
    last = board_.AwaitBuffer(*slot, pool, watch_, &waited_ns)->buffer;
  }
  EXPECT_EQ(waited_ns, 0);
  auto next = std::async(std::launch::async, [&] {
    return board_.AwaitBuffer(*slot, pool, watch_, &waited_ns);
  });
  board_.GiveBuffer(*slot, pool, last);
  const auto taken = next.get();
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->buffer, last);
  EXPECT_FALSE(taken->fresh);
  EXPECT_EQ(taken->awaited_download, waited_ns > 0);
  board_.EndCompute(*slot, absl::CancelledError("over"), {});
}

TEST_F(SlotBoardTest, ACopyInFlightKeepsTheSlot) {
  Slot* const slot = Begin(forward());
  ASSERT_NE(slot, nullptr);
  board_.EndCompute(*slot, absl::CancelledError("over"), {});
  board_.BeginCopy(*slot);
  EXPECT_TRUE(Look().ended.empty());
  board_.TakeBackCopy(*slot);
  EXPECT_EQ(Look().ended.size(), 1u);
}

TEST_F(SlotBoardTest, HeldSumsAreOfWhoeverTookThem) {
  wire::RunSlot command = backward();
  command.sums = wire::SumPlace::kDevice;
  Slot* const slot = Begin(command);
  ASSERT_NE(slot, nullptr);
  const size_t count = slot->plan.units[0].contributions.size();
  const uint32_t unit = command.units[0].unit;
  ASSERT_GT(count, 0u);
  for (uint32_t c = 0; c < count; ++c) {
    EXPECT_EQ(board_.TakeSumsToExchange(1, unit).slot, nullptr);
    EXPECT_EQ(board_.HoldSum(*slot, 0, {.contribution = c}), c + 1 == count);
  }
  TakenSums taken = board_.TakeSumsToExchange(1, unit);
  ASSERT_EQ(taken.slot, slot);
  EXPECT_EQ(taken.sums.size(), count);
  EXPECT_EQ(board_.TakeSumsToExchange(1, unit).slot, nullptr);
  EXPECT_EQ(board_.TakeSumsToDownload(1, unit).slot, nullptr);
  board_.EndCompute(*slot, absl::CancelledError("over"), {});
  EXPECT_TRUE(Look().ended.empty());
  board_.ReturnSums(std::move(taken), HeldUnit::State::kHeld);
  EXPECT_EQ(Look().ended.size(), 1u);
}

// What a worker's threads do with the board, at random: every slot ends once,
// and nothing of its memory stays.
class Threads {
 public:
  Threads(SlotBoard& board, const UploadFeed& feed, uint64_t seed)
      : board_(board), feed_(feed), seed_(seed) {}

  void Compute() {
    std::mt19937_64 random(seed_ + 1);
    while (true) {
      const SlotBoard::Work work = board_.NextToCompute(watch_);
      if (work.slot == nullptr) return;
      Slot& slot = *work.slot;
      ComputeRecord record;
      absl::Status status = ComputeOne(slot, record);
      if (status.ok() && random() % 8 == 0) {
        status = absl::InternalError("at random");
      }
      board_.EndCompute(slot, std::move(status), std::move(record));
    }
  }

  // Until `count` slots have ended.
  void Feed(size_t count) {
    std::mt19937_64 random(seed_ + 2);
    FeedStep step;
    while (ended_.size() < count) {
      board_.LookAtSlots(feed_, step);
      for (const BegunUpload& upload : step.uploads) {
        const bool fails = random() % 64 == 0;
        board_.EndUpload(
            *upload.slot, upload.name,
            fails ? absl::InternalError("at random") : absl::OkStatus());
      }
      for (const FeedStep::Raise& raise : step.raises) {
        if (board_.GivenUp(*raise.slot)) continue;
        board_.SettleOutput(*raise.slot, raise.output);
      }
      for (const auto& slot : step.ended) ++ended_[slot->attempt];
      board_.WakeAll();
      step = FeedStep();
      std::this_thread::yield();
    }
  }

  const std::map<uint64_t, int>& ended() const { return ended_; }

 private:
  absl::Status ComputeOne(Slot& slot, ComputeRecord& record) {
    const PoolName pool{PoolName::Kind::kOutputs};
    for (size_t m = 0; m < slot.command.micro_batches.size(); ++m) {
      const auto input = board_.AwaitUpload(slot, {UploadName::Kind::kInput, m},
                                            watch_, &record.waited_ns);
      if (!input.ok()) return input.status();
      for (const uint32_t output : slot.plan.micro_batches[m].outputs) {
        const auto taken =
            board_.AwaitBuffer(slot, pool, watch_, &record.waited_ns);
        if (!taken.ok()) return taken.status();
        board_.BeginCopy(slot);
        board_.EndDownload(slot, pool, taken->buffer,
                           {CopiedPart::Kind::kOutput, output},
                           absl::OkStatus());
      }
      board_.ReleaseUploads(slot, m);
    }
    return absl::OkStatus();
  }

  SlotBoard& board_;
  NoWatch watch_;
  const UploadFeed& feed_;
  const uint64_t seed_;
  std::map<uint64_t, int> ended_;  // how often, by attempt
};

TEST_F(SlotBoardTest, EverySlotEndsOnceWhateverTheThreadsDo) {
  constexpr uint64_t kSlots = 300;
  job_->RaiseInputs();
  job_->RaiseVersions();
  Threads threads(board_, feed_, /*seed=*/7);
  std::thread compute([&] { threads.Compute(); });
  std::thread feeder([&] { threads.Feed(kSlots); });
  std::mt19937_64 random(7);
  for (uint64_t attempt = 1; attempt <= kSlots;) {
    wire::RunSlot slot = forward();
    slot.job += random() % 3;
    slot.turn = random() % 4;
    const absl::Status added = Add(attempt, slot);
    if (added.ok()) {
      ++attempt;
    } else {
      ASSERT_TRUE(absl::IsResourceExhausted(added)) << added;
      std::this_thread::yield();
    }
    if (random() % 4 == 0) board_.Withdraw(1 + random() % attempt);
  }
  feeder.join();
  board_.Stop();
  compute.join();
  EXPECT_EQ(threads.ended().size(), kSlots);
  for (const auto& [attempt, times] : threads.ended()) {
    EXPECT_EQ(times, 1) << attempt;
  }
  EXPECT_EQ(device_.memory().used_bytes, 0u);
}

}  // namespace
}  // namespace roundhouse::worker
