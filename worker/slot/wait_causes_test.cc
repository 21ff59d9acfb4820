// What a device worker says of why it did not compute (wait_split.h).
#include <limits>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "worker/slot/fake_stage_run.h"
#include "worker/slot/slot_runner.h"
#include "worker/slot/test_job.h"

namespace roundhouse::worker {
namespace {

using wire::WaitCause;
using wire::WaitTimes;

int64_t Of(const WaitTimes& waits, WaitCause cause) {
  return waits[static_cast<uint32_t>(cause)];
}

int64_t Sum(const WaitTimes& waits) {
  return std::accumulate(waits.begin(), waits.end(), int64_t{0});
}

class WaitCausesTest : public testing::Test {
 protected:
  void SetUp() override {
    TestWorkerOptions options;
    options.runner.make_run = FakeStageRuns();
    worker_ = std::make_unique<TestWorker>(job_, 0, options);
  }

  void Raise(const wire::WordRef& word) {
    wire::Raise(job_.arena().WordAt(word.offset), word.value,
                job_.arena().doorbells());
  }

  // Until the feeder has looked at the slot: it gives weights memory after it
  // has looked at the first input.
  void AwaitFed() {
    while (worker_->device().memory().used_bytes == 0) {
      std::this_thread::yield();
    }
  }

  // Runs the slot to its end; what it waited for before and while it computed.
  struct Waits {
    WaitTimes before = {};
    WaitTimes within = {};
    wire::SlotDone done;
  };
  Waits End(uint64_t attempt) {
    Waits waits;
    waits.done = std::get<wire::SlotDone>(worker_->End(attempt));
    for (const wire::Message& event : worker_->events()) {
      if (event.attempt != attempt) continue;
      if (const auto* one = std::get_if<wire::SlotStarted>(&event.body)) {
        waits.before = one->waits;
      }
      const auto* one = std::get_if<wire::MicroBatchDone>(&event.body);
      for (int c = 0; one != nullptr && c < wire::kWaitCauses; ++c) {
        waits.within[c] += one->waits[c];
      }
    }
    return waits;
  }

  SlotTestJob job_{SmallConfig(4, false),
                   {{{0, 1}, {2, 3}}, {{4, 4}, {2, 3}, {0, 1}}, 4, 2},
                   5};
  std::vector<wire::RunSlot> slots_ = job_.MakeRound(1);
  std::unique_ptr<TestWorker> worker_;
};

TEST_F(WaitCausesTest, RowsOfTheEmbeddingAreData) {
  job_.RaiseVersions();
  const uint64_t attempt = worker_->Send(slots_[0]);
  AwaitFed();
  job_.RaiseInputs();
  const Waits waits = End(attempt);
  EXPECT_GT(Of(waits.before, WaitCause::kData), 0);
  EXPECT_GT(Of(waits.before, WaitCause::kDispatch), 0);  // before it was sent
  EXPECT_EQ(Of(waits.before, WaitCause::kDependency), 0);
  EXPECT_EQ(Of(waits.before, WaitCause::kOptimizer), 0);
  EXPECT_EQ(Of(waits.before, WaitCause::kD2H), 0);
}

TEST_F(WaitCausesTest, RowsThatTheHostHasNoTimeForAreTheOptimizers) {
  for (const wire::SlotUnit& unit : slots_[0].units) Raise(unit.version);
  wire::RunSlot slot = slots_[0];
  slot.gather_begun = slots_[1].units[0].version;
  const uint64_t attempt = worker_->Send(slot);
  AwaitFed();
  Raise(slot.gather_begun);
  job_.RaiseInputs();
  const Waits waits = End(attempt);
  EXPECT_GT(Of(waits.before, WaitCause::kOptimizer), 0);
  EXPECT_EQ(Of(waits.before, WaitCause::kDependency), 0);
}

TEST_F(WaitCausesTest, AnotherSlotsOutputIsADependency) {
  job_.RaiseVersions();
  const uint64_t attempt = worker_->Send(slots_[1]);
  AwaitFed();
  for (const auto& one : slots_[1].micro_batches) Raise(one.input_ready);
  const Waits waits = End(attempt);
  EXPECT_GT(Of(waits.before, WaitCause::kDependency), 0);
  EXPECT_EQ(Of(waits.before, WaitCause::kData), 0);
  EXPECT_EQ(Of(waits.before, WaitCause::kOptimizer), 0);
}

TEST_F(WaitCausesTest, WeightsThatAreNotUpdatedAreTheOptimizers) {
  job_.RaiseInputs();
  const uint64_t attempt = worker_->Send(slots_[0]);
  worker_->Await<wire::SlotStarted>();
  job_.RaiseVersions();
  const Waits waits = End(attempt);
  EXPECT_EQ(Of(waits.within, WaitCause::kData), 0);
  EXPECT_EQ(Of(waits.within, WaitCause::kDependency), 0);
  EXPECT_EQ(Of(waits.within, WaitCause::kDispatch), 0);
}

// The daemon says so: what came before it was not the worker's to see.
TEST_F(WaitCausesTest, UntilASlotWasPossibleTheWaitIsWhatTheDaemonSays) {
  job_.RaiseVersions();
  job_.RaiseInputs();
  wire::RunSlot slot = slots_[0];
  slot.enabled_ns = std::numeric_limits<int64_t>::max();
  slot.enabled_by = WaitCause::kOptimizer;
  const Waits waits = End(worker_->Send(slot));
  EXPECT_GT(Sum(waits.before), 0);
  EXPECT_EQ(Of(waits.before, WaitCause::kOptimizer), Sum(waits.before));
}

TEST_F(WaitCausesTest, CausesSumToTheSlotsWait) {
  job_.RaiseInputs();
  job_.RaiseVersions();
  for (const wire::RunSlot& slot : slots_) {
    const Waits waits = End(worker_->Send(slot));
    EXPECT_EQ(Sum(waits.within), waits.done.wait_ns) << slot.slot;
  }
}

TEST_F(WaitCausesTest, TheLastMicroBatchSaysSo) {
  job_.RaiseInputs();
  job_.RaiseVersions();
  End(worker_->Send(slots_[0]));
  std::vector<uint32_t> last;
  for (const wire::Message& event : worker_->events()) {
    if (const auto* one = std::get_if<wire::MicroBatchDone>(&event.body)) {
      last.push_back(one->last);
    }
  }
  EXPECT_EQ(last, (std::vector<uint32_t>{0, 0, 0, 1}));
}

}  // namespace
}  // namespace roundhouse::worker
