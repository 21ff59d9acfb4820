// Slots on the fake device: the order of dependencies is a real worker's, and
// what passes is the time that the costs say.
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/fakes/fake_device.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/test_clock.h"
#include "worker/slot/test_job.h"

namespace roundhouse::fakes {
namespace {

using worker::TestWorker;
using Intervals = std::vector<Resource::Interval>;

constexpr int64_t kMs = 1'000'000;
// Time for what must not happen to happen in.
constexpr absl::Duration kGrace = absl::Milliseconds(20);
// The test's; the workers have those before it.
constexpr int kOwnBell = 6;

const std::vector<LayerCost>& Costs() {
  static const std::vector<LayerCost> costs = {
      {1 * kMs, 2 * kMs, 3 * kMs},   {4 * kMs, 5 * kMs, 6 * kMs},
      {7 * kMs, 8 * kMs, 9 * kMs},   {10 * kMs, 11 * kMs, 12 * kMs},
      {13 * kMs, 0 * kMs, 14 * kMs},
  };
  return costs;
}

// What one device's engines did.
class Record {
 public:
  void Add(Engine engine, Resource::Interval interval) {
    std::lock_guard<std::mutex> lock(mutex_);
    intervals_[engine].push_back(interval);
    changed_.notify_all();
  }
  Intervals Of(Engine engine) {
    std::lock_guard<std::mutex> lock(mutex_);
    return intervals_[engine];
  }
  // The times of the compute engine, as soon as there are `count`.
  std::vector<int64_t> AwaitComputed(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock,
                  [&] { return intervals_[Engine::kCompute].size() >= count; });
    std::vector<int64_t> durations;
    for (const auto& interval : intervals_[Engine::kCompute]) {
      durations.push_back(interval.end_ns - interval.begin_ns);
    }
    return durations;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Engine, Intervals> intervals_;  // guarded by mutex_
};

worker::RoundShape Shape() {
  return {{{0, 1}, {2, 2}}, {{3, 4}, {1, 2}, {0, 0}}, 4, 2};
}

// The times of one micro-batch, in the order of its computation.
std::vector<int64_t> ExpectedOf(const wire::RunSlot& slot) {
  std::vector<int64_t> times;
  const bool head = slot.last_layer == 4;
  const int last = static_cast<int>(slot.last_layer) - (head ? 1 : 0);
  const int first = static_cast<int>(slot.first_layer);
  const bool backward = slot.kind != SlotKind::kForward;
  for (int layer = first; layer <= last; ++layer) {
    const LayerCost& cost = Costs()[static_cast<size_t>(layer)];
    times.push_back(backward ? cost.recompute_ns : cost.forward_ns);
  }
  if (head) times.push_back(Costs()[4].forward_ns + Costs()[4].backward_ns);
  for (int layer = last; backward && layer >= first; --layer) {
    times.push_back(Costs()[static_cast<size_t>(layer)].backward_ns);
  }
  return times;
}

class FakeSlotsTest : public testing::Test {
 protected:
  std::unique_ptr<TestWorker> Start(Record& record) {
    auto device = std::make_unique<FakeDevice>(
        FakeDeviceOptions{
            .memory_bytes = 64 << 20,
            .link_bytes_per_second = 1e9,
            .observe =
                [&record](Engine engine, Resource::Interval interval) {
                  record.Add(engine, interval);
                }},
        clock_);
    worker::TestWorkerOptions options;
    options.runner.make_run = FakeStageRuns(*device, Costs());
    options.runner.make_generation = FakeGenerations(*device, Costs());
    auto holder =
        std::make_shared<std::unique_ptr<worker::Device>>(std::move(device));
    options.make_device = [holder](uint64_t) { return std::move(*holder); };
    return std::make_unique<TestWorker>(job_, next_index_++,
                                        std::move(options));
  }
  void Raise(const wire::WordRef& word) {
    wire::Raise(job_.arena().WordAt(word.offset), word.value,
                job_.arena().doorbells());
  }
  bool Raised(const wire::WordRef& word) {
    return wire::Reached(job_.arena().WordAt(word.offset), word.value);
  }
  void Await(const wire::WordRef& word) {
    wire::Doorbell& bell = job_.arena().doorbells().bell[kOwnBell];
    while (!Raised(word)) {
      wire::WaitForRing(bell, absl::Seconds(1), [&] { return Raised(word); });
    }
  }

  worker::SlotTestJob job_{worker::SmallConfig(4, false), Shape(), 5};
  std::vector<wire::RunSlot> slots_ = job_.MakeRound(1);
  TestClock clock_;
  Record first_, second_;
  int next_index_ = 0;
};

TEST_F(FakeSlotsTest, ARoundTakesWhatItsLayersCost) {
  std::vector<std::unique_ptr<TestWorker>> workers;
  workers.push_back(Start(first_));
  workers.push_back(Start(second_));
  job_.RaiseVersions();
  job_.RaiseInputs();
  const auto done = worker::RunSlots(workers, slots_);
  ASSERT_EQ(done.size(), slots_.size());
  std::vector<int64_t> expected[2];
  for (size_t i = 0; i < slots_.size(); ++i) {
    const std::vector<int64_t> one = ExpectedOf(slots_[i]);
    for (size_t m = 0; m < slots_[i].micro_batches.size(); ++m) {
      expected[i % 2].insert(expected[i % 2].end(), one.begin(), one.end());
    }
    for (const wire::SlotOutput& output : slots_[i].outputs) {
      EXPECT_TRUE(Raised(output.raise)) << "slot " << i;
    }
  }
  EXPECT_EQ(first_.AwaitComputed(0), expected[0]);
  EXPECT_EQ(second_.AwaitComputed(0), expected[1]);
}

TEST_F(FakeSlotsTest, EachEngineDoesOneThingAtATime) {
  std::vector<std::unique_ptr<TestWorker>> workers;
  workers.push_back(Start(first_));
  job_.RaiseVersions();
  job_.RaiseInputs();
  ASSERT_EQ(worker::RunSlots(workers, slots_).size(), slots_.size());
  for (Engine engine : {Engine::kCompute, Engine::kUpload, Engine::kDownload}) {
    const Intervals intervals = first_.Of(engine);
    EXPECT_GT(intervals.size(), 10u);
    for (size_t i = 1; i < intervals.size(); ++i) {
      EXPECT_GE(intervals[i].begin_ns, intervals[i - 1].end_ns);
    }
  }
}

TEST_F(FakeSlotsTest, ReportsTheLossOfEachMicroBatch) {
  std::vector<std::unique_ptr<TestWorker>> workers;
  workers.push_back(Start(first_));
  job_.RaiseVersions();
  job_.RaiseInputs();
  const auto done = worker::RunSlots(workers, slots_);
  const wire::RunSlot& fused = slots_[2];
  ASSERT_EQ(fused.kind, SlotKind::kFused);
  ASSERT_EQ(done.at(fused.slot).results.size(), 4u);
  for (const wire::MicroBatchResult& result : done.at(fused.slot).results) {
    const double tokens =
        worker::SlotTestJob::kRows * worker::SlotTestJob::kRowTokens;
    EXPECT_DOUBLE_EQ(result.loss_sum,
                     tokens * FakeLoss(worker::SlotTestJob::kStep));
    EXPECT_EQ(result.finite, wire::Finite::kYes);
  }
}

TEST_F(FakeSlotsTest, AMicroBatchWaitsForItsInputAndRaisesItsOutputs) {
  const auto worker = Start(first_);
  job_.RaiseVersions();
  const uint64_t attempt = worker->Send(slots_[0]);
  job_.RaiseInput(0);
  // The input of the backward stage that begins at layer 1, then the stage's.
  ASSERT_EQ(slots_[0].outputs[0].boundary, 1u);
  ASSERT_EQ(slots_[0].outputs[1].boundary, 2u);
  Await(slots_[0].outputs[0].raise);
  Await(slots_[0].outputs[1].raise);
  absl::SleepFor(kGrace);
  EXPECT_EQ(first_.AwaitComputed(0).size(), 2u);
  EXPECT_FALSE(Raised(slots_[0].outputs[2].raise));
  for (size_t m = 1; m < 4; ++m) job_.RaiseInput(m);
  EXPECT_TRUE(std::holds_alternative<wire::SlotDone>(worker->End(attempt)));
}

TEST_F(FakeSlotsTest, ALayerWaitsForTheVersionOfItsWeights) {
  const auto worker = Start(first_);
  job_.RaiseInputs();
  const wire::RunSlot& slot = slots_[0];
  ASSERT_EQ(slot.units.size(), 2u);
  Raise(slot.units[0].version);
  const uint64_t attempt = worker->Send(slot);
  first_.AwaitComputed(1);
  absl::SleepFor(kGrace);
  EXPECT_EQ(first_.AwaitComputed(0), std::vector<int64_t>{1 * kMs});
  Raise(slot.units[1].version);
  EXPECT_TRUE(std::holds_alternative<wire::SlotDone>(worker->End(attempt)));
  EXPECT_EQ(first_.AwaitComputed(0).size(), 8u);
}

TEST_F(FakeSlotsTest, ABackwardSlotWaitsForItsGradient) {
  const auto worker = Start(first_);
  job_.RaiseVersions();
  const wire::RunSlot& slot = slots_[3];
  ASSERT_EQ(slot.kind, SlotKind::kBackward);
  ASSERT_EQ(slot.first_layer, 1u);
  const uint64_t attempt = worker->Send(slot);
  for (const auto& one : slot.micro_batches) Raise(one.input_ready);
  // It recomputes layers 1 and 2 meanwhile.
  first_.AwaitComputed(2);
  absl::SleepFor(kGrace);
  EXPECT_EQ(first_.AwaitComputed(0), (std::vector<int64_t>{5 * kMs, 8 * kMs}));
  for (const auto& one : slot.micro_batches) Raise(one.gradient_ready);
  EXPECT_TRUE(std::holds_alternative<wire::SlotDone>(worker->End(attempt)));
}

TEST_F(FakeSlotsTest, GivesASlotBack) {
  const auto worker = Start(first_);
  job_.RaiseVersions();
  const uint64_t attempt = worker->Send(slots_[0]);
  job_.RaiseInput(0);
  first_.AwaitComputed(2);
  worker->Cancel(attempt);
  EXPECT_TRUE(std::holds_alternative<wire::Withdrawn>(worker->End(attempt)));
}

TEST_F(FakeSlotsTest, ContinuesASample) {
  const auto worker = Start(first_);
  job_.RaiseVersions();
  const wire::RunSample sample = job_.MakeSample(1, {{5, 6}, {7}}, 3);
  const auto done =
      std::get<wire::SampleDone>(worker->End(worker->Send(sample)));
  EXPECT_EQ(done.counts, (std::vector<uint32_t>{3, 3}));
  EXPECT_EQ(done.tokens, std::vector<int32_t>(6, 0));
  EXPECT_EQ(first_.AwaitComputed(0).size(), 3u * 5u);
}

}  // namespace
}  // namespace roundhouse::fakes
