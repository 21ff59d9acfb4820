// What a device worker does besides computing: waiting, withdrawing, replaying,
// prefetching within its memory, failing.  The daemon's side is the test's.
#include "worker/slot/slot_runner.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/slot/fake_stage_run.h"
#include "worker/slot/test_job.h"

namespace roundhouse::worker {
namespace {

// Stops the compute thread before a layer until it is opened.
class Gate {
 public:
  FakeHook Before(int64_t layer) {
    return [this, layer](int64_t at, bool) {
      std::unique_lock<std::mutex> lock(mutex_);
      seen_.insert(at);
      reached_ = reached_ || at == layer;
      changed_.notify_all();
      changed_.wait(lock, [&] { return open_ || at != layer; });
      return absl::OkStatus();
    };
  }
  void AwaitReached() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return reached_; });
  }
  void AwaitSeen(int64_t layer) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return seen_.count(layer) > 0; });
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int64_t> seen_;
  bool reached_ = false;
  bool open_ = false;
};

RoundShape Shape() {
  return {{{0, 1}, {2, 3}}, {{4, 4}, {2, 3}, {0, 1}}, 4, 2};
}

class SlotRunnerTest : public testing::Test {
 protected:
  explicit SlotRunnerTest(const RoundShape& shape = Shape())
      : job_(SmallConfig(4, false), shape, 5) {}

  std::unique_ptr<TestWorker> Start(FakeHook hook = nullptr,
                                    TestWorkerOptions options = {}) {
    options.runner.make_run = FakeStageRuns(std::move(hook));
    return std::make_unique<TestWorker>(job_, next_index_++, options);
  }
  std::vector<std::unique_ptr<TestWorker>> Fleet(
      std::unique_ptr<TestWorker> worker) {
    std::vector<std::unique_ptr<TestWorker>> workers;
    workers.push_back(std::move(worker));
    return workers;
  }
  void RaiseAll() {
    job_.RaiseVersions();
    job_.RaiseInputs();
  }
  // The round's last stage as an evaluation has it, the others without dropout.
  wire::RunSlot Evaluation() {
    for (wire::RunSlot& slot : slots_) {
      slot.mode = wire::StepMode::kEvaluate;
    }
    wire::RunSlot evaluate = slots_[2];
    evaluate.kind = SlotKind::kEvaluate;
    evaluate.outputs.clear();
    evaluate.contributions.clear();
    return evaluate;
  }
  size_t RaisedOutputs(const wire::RunSlot& slot) const {
    size_t raised = 0;
    for (const wire::SlotOutput& output : slot.outputs) {
      if (job_.WordValue(output.raise) != 0) ++raised;
    }
    return raised;
  }
  // Runs the whole round on a fresh worker and checks every byte.
  void FinishOnAnother() {
    auto workers = Fleet(Start());
    job_.CheckRound(slots_, RunSlots(workers, slots_), reference_);
  }

  SlotTestJob job_;
  std::vector<wire::RunSlot> slots_ = job_.MakeRound(1);
  SlotTestJob::Reference reference_ = job_.ComputeReference(FakeStageRuns());
  int next_index_ = 0;
};

TEST_F(SlotRunnerTest, TellsTheTruthAboutASlot) {
  RaiseAll();
  auto worker = Start();
  const uint64_t attempt = worker->Send(slots_[0]);
  const auto done = std::get<wire::SlotDone>(worker->End(attempt));
  uint64_t weights = 0, inputs = 0, outputs = 0;
  for (const auto& unit : slots_[0].units) weights += unit.weights.bytes;
  for (const auto& one : slots_[0].micro_batches) inputs += one.input.bytes;
  for (const auto& output : slots_[0].outputs) outputs += output.buffer.bytes;
  EXPECT_EQ(done.slot, slots_[0].slot);
  EXPECT_EQ(done.bytes[0][0], weights);
  EXPECT_EQ(done.bytes[0][2], inputs);
  EXPECT_EQ(done.bytes[1][2], outputs);
  EXPECT_EQ(done.bytes[0][1] + done.bytes[0][3] + done.bytes[1][0] +
                done.bytes[1][1] + done.bytes[1][3],
            0u);
  EXPECT_LE(done.started_ns, done.ended_ns);
  EXPECT_GT(done.compute_ns, 0);
  EXPECT_GE(done.wait_ns, 0);
  EXPECT_LE(done.compute_ns + done.wait_ns, done.ended_ns - done.started_ns);
  EXPECT_GT(done.h2d_ns, 0);
  EXPECT_GT(done.d2h_ns, 0);
  EXPECT_GE(done.device_memory_peak_bytes, weights);
  EXPECT_TRUE(done.results.empty());
  ASSERT_EQ(done.layers.size(), 2u);
  EXPECT_EQ(done.layers[1].layer, 1u);
  EXPECT_EQ(done.layers[0].samples, 3u);
  EXPECT_GT(done.layers[0].forward_ns, 0);
  EXPECT_EQ(done.layers[0].backward_ns, 0);
}

TEST_F(SlotRunnerTest, EventsComeInOrder) {
  RaiseAll();
  auto worker = Start();
  const uint64_t attempt = worker->Send(slots_[0]);
  worker->End(attempt);
  std::string order;
  int64_t last_ns = 0;
  for (const wire::Message& event : worker->events()) {
    if (event.attempt != attempt) continue;
    if (const auto* started = std::get_if<wire::SlotStarted>(&event.body)) {
      order += "s";
      EXPECT_LE(started->received_ns, started->time_ns);
      last_ns = started->time_ns;
    } else if (const auto* one =
                   std::get_if<wire::MicroBatchDone>(&event.body)) {
      order += std::to_string(one->index);
      EXPECT_LE(last_ns, one->time_ns);
      last_ns = one->time_ns;
    } else if (std::holds_alternative<wire::SlotDone>(event.body)) {
      order += "d";
    }
  }
  EXPECT_EQ(order, "s0123d");
}

// Layer 3's sums are in the arena while layer 2's last backward waits.
TEST_F(SlotRunnerTest, SaysWhichSumsAreDownBeforeItsEnd) {
  RaiseAll();
  {
    auto workers = Fleet(Start());
    RunSlots(workers, {slots_[0], slots_[1], slots_[2]});
  }
  wire::RunSlot backward = slots_[3];
  Gate gate;
  const FakeHook wait = gate.Before(2);
  int calls = 0;
  auto worker = Start([&](int64_t layer, bool is_backward) {
    const bool last = layer == 2 && is_backward && ++calls == 4;
    return last ? wait(layer, is_backward) : absl::OkStatus();
  });
  const uint64_t attempt = worker->Send(backward);
  const auto told = worker->Await<wire::SumsDown>();
  EXPECT_EQ(told.slot, backward.slot);
  EXPECT_EQ(told.units, std::vector<uint32_t>{4});
  const auto is_down = [](const wire::SlotContribution& sum) {
    return sum.unit == 4;
  };
  for (const wire::SlotContribution& sum : backward.contributions) {
    if (!is_down(sum)) continue;
    EXPECT_EQ(job_.Bytes(sum.buffer),
              job_.ExpectedSum(reference_, sum.unit,
                               {sum.first_group,
                                int64_t{sum.first_group} + sum.group_count}));
  }
  worker->Cancel(attempt);
  gate.Open();
  EXPECT_TRUE(std::holds_alternative<wire::Withdrawn>(worker->End(attempt)));
  // They may be reduced now: the next attempt is told nothing of them.
  std::erase_if(backward.contributions, is_down);
  ASSERT_FALSE(backward.contributions.empty());
  auto workers = Fleet(Start());
  const auto done = RunSlots(workers, {backward});
  EXPECT_EQ(done.at(backward.slot).slot, backward.slot);
  for (const wire::SlotContribution& sum : backward.contributions) {
    EXPECT_EQ(job_.Bytes(sum.buffer),
              job_.ExpectedSum(reference_, sum.unit,
                               {sum.first_group,
                                int64_t{sum.first_group} + sum.group_count}));
  }
}

TEST_F(SlotRunnerTest, BackwardBytesAndTimesAreCounted) {
  RaiseAll();
  auto workers = Fleet(Start());
  const auto done = RunSlots(workers, slots_);
  const wire::RunSlot& fused = slots_[2];
  const wire::RunSlot& backward = slots_[3];
  uint64_t sums = 0, inputs = 0;
  for (const auto& one : backward.contributions) sums += one.buffer.bytes;
  for (const auto& one : backward.micro_batches) {
    inputs += one.input.bytes + one.gradient.bytes;
  }
  // Labels are read where they lie.
  EXPECT_EQ(done.at(fused.slot).bytes[0][3], 0u);
  EXPECT_EQ(done.at(backward.slot).bytes[1][1], sums);
  EXPECT_EQ(done.at(backward.slot).bytes[0][2], inputs);
  EXPECT_GT(done.at(backward.slot).layers[0].forward_ns, 0);
  EXPECT_GT(done.at(backward.slot).layers[0].backward_ns, 0);
  EXPECT_EQ(done.at(fused.slot).results.size(), 4u);
}

// Every byte is in an interval with its layer and micro-batch; those of a
// direction do not overlap, across slots neither.
TEST_F(SlotRunnerTest, ATracedSlotTellsItsCopies) {
  RaiseAll();
  slots_[1].trace = slots_[2].trace = slots_[3].trace = true;
  auto workers = Fleet(Start());
  const auto done = RunSlots(workers, slots_);
  EXPECT_TRUE(done.at(slots_[0].slot).copies.empty());
  std::vector<wire::CopyInterval> links[wire::kDirections];
  for (const int s : {1, 2, 3}) {
    const wire::RunSlot& slot = slots_[s];
    const wire::SlotDone& one = done.at(slot.slot);
    EXPECT_EQ(one.copies_left_out, 0u);
    uint64_t bytes[wire::kDirections][wire::kPurposes] = {};
    for (const wire::CopyInterval& copy : one.copies) {
      const auto direction = static_cast<size_t>(copy.direction);
      bytes[direction][static_cast<size_t>(copy.purpose)] += copy.bytes;
      links[direction].push_back(copy);
      EXPECT_LT(copy.started_ns, copy.ended_ns);
      EXPECT_GE(copy.layer, slot.first_layer);
      EXPECT_LE(copy.layer, slot.last_layer + 1);  // where its outputs go
      const bool bulk = copy.purpose == wire::Purpose::kWeights ||
                        copy.purpose == wire::Purpose::kGradients;
      EXPECT_EQ(copy.micro_batch == -1, bulk);
    }
    for (int d = 0; d < wire::kDirections; ++d) {
      for (int p = 0; p < wire::kPurposes; ++p) {
        EXPECT_EQ(bytes[d][p], one.bytes[d][p]) << d << p;
      }
    }
  }
  for (auto& link : links) {
    std::sort(link.begin(), link.end(), [](const auto& a, const auto& b) {
      return a.started_ns < b.started_ns;
    });
    for (size_t i = 1; i < link.size(); ++i) {
      EXPECT_LE(link[i - 1].ended_ns, link[i].started_ns);
    }
  }
}

// The second micro-batch's input goes up behind the first layer's weights, and
// the last gradient of the embedding's rows down behind its layer's sums.
TEST_F(SlotRunnerTest, OnASlowLinkWhatIsWaitedForGoesFirst) {
  RaiseAll();
  wire::RunSlot& last = slots_.back();
  ASSERT_EQ(last.first_layer, 0u);
  last.trace = true;
  auto workers = Fleet(Start());
  RunSlots(workers, {slots_.begin(), slots_.end() - 1});
  TestWorkerOptions options;
  options.runner.link_gbps = 0.01;
  auto worker = Start(nullptr, options);
  const uint64_t attempt = worker->Send(last);
  // Before its end, for which the rows' gradient has to be down, too.
  while (worker->Await<wire::SumsDown>().units != std::vector<uint32_t>{1}) {
  }
  const auto end = std::get<wire::SlotDone>(worker->End(attempt));
  int64_t weights_ns = 0, sums_ns = 0, second_input_ns = 0, rows_ns = 0;
  for (const wire::CopyInterval& copy : end.copies) {
    const bool up = copy.direction == wire::Direction::kH2D;
    if (copy.layer == 0 && copy.purpose == wire::Purpose::kWeights) {
      weights_ns = std::max(weights_ns, copy.ended_ns);
    } else if (copy.layer == 0 && copy.purpose == wire::Purpose::kGradients) {
      sums_ns = std::max(sums_ns, copy.ended_ns);
    } else if (copy.purpose == wire::Purpose::kActivations) {
      if (up && copy.micro_batch == 1 && second_input_ns == 0) {
        second_input_ns = copy.started_ns;
      }
      if (!up && copy.micro_batch == 3) rows_ns = copy.started_ns;
    }
  }
  ASSERT_GT(weights_ns, 0);
  ASSERT_GT(sums_ns, 0);
  EXPECT_GE(second_input_ns, weights_ns);
  EXPECT_GE(rows_ns, sums_ns);
}

TEST_F(SlotRunnerTest, ALayerStartsWhenItsOwnWeightsAreThere) {
  job_.RaiseInputs();
  Gate gate;
  gate.Open();
  auto worker = Start(gate.Before(-1));
  const uint64_t attempt = worker->Send(slots_[0]);
  const wire::WordRef& first = slots_[0].units[0].version;
  const wire::WordRef& second = slots_[0].units[1].version;
  wire::Raise(job_.arena().WordAt(first.offset), 1, job_.arena().doorbells());
  gate.AwaitSeen(0);
  EXPECT_EQ(RaisedOutputs(slots_[0]), 0u);
  wire::Raise(job_.arena().WordAt(second.offset), 1, job_.arena().doorbells());
  EXPECT_TRUE(std::holds_alternative<wire::SlotDone>(worker->End(attempt)));
}

TEST_F(SlotRunnerTest, AnOlderVersionIsNotEnough) {
  RaiseAll();
  wire::RunSlot slot = slots_[0];
  for (wire::SlotUnit& unit : slot.units) unit.version.value = 2;
  auto worker = Start();
  const uint64_t attempt = worker->Send(slot);
  worker->Await<wire::SlotStarted>();
  worker->Cancel(attempt);
  EXPECT_TRUE(std::holds_alternative<wire::Withdrawn>(worker->End(attempt)));
  EXPECT_EQ(RaisedOutputs(slot), 0u);
}

TEST_F(SlotRunnerTest, MicroBatchesFlowAsTheyCome) {
  job_.RaiseVersions();
  auto worker = Start();
  const uint64_t attempt = worker->Send(slots_[0]);
  for (uint32_t m = 0; m < 4; ++m) {
    job_.RaiseInput(m);
    EXPECT_EQ(worker->Await<wire::MicroBatchDone>().index, m);
  }
  EXPECT_TRUE(std::holds_alternative<wire::SlotDone>(worker->End(attempt)));
}

// --- withdrawal ---

TEST_F(SlotRunnerTest, WithdrawnBeforeItsFirstInput) {
  auto worker = Start();
  const uint64_t attempt = worker->Send(slots_[0]);
  worker->Cancel(attempt);
  const auto answer = std::get<wire::Withdrawn>(worker->End(attempt));
  EXPECT_EQ(answer.slot, slots_[0].slot);
  RaiseAll();
  EXPECT_EQ(RaisedOutputs(slots_[0]), 0u);
  FinishOnAnother();
}

TEST_F(SlotRunnerTest, WithdrawnByMessageAlone) {
  auto worker = Start();
  const uint64_t attempt = worker->Send(slots_[0]);
  worker->Send(wire::Withdraw{attempt});
  EXPECT_TRUE(std::holds_alternative<wire::Withdrawn>(worker->End(attempt)));
}

TEST_F(SlotRunnerTest, CancelledBeforeTheCommandArrives) {
  RaiseAll();
  auto worker = Start();
  // ConfigureJob was attempt 1.
  worker->Cancel(2);
  const uint64_t attempt = worker->Send(slots_[0]);
  ASSERT_EQ(attempt, 2u);
  const wire::Body end = worker->End(attempt);
  EXPECT_TRUE(std::holds_alternative<wire::Withdrawn>(end));
  EXPECT_EQ(RaisedOutputs(slots_[0]), 0u);
}

TEST_F(SlotRunnerTest, WithdrawnInsideALayerRaisesNothingMore) {
  RaiseAll();
  Gate gate;
  auto worker = Start(gate.Before(1));
  const uint64_t attempt = worker->Send(slots_[0]);
  gate.AwaitReached();
  worker->Cancel(attempt);
  gate.Open();
  EXPECT_TRUE(std::holds_alternative<wire::Withdrawn>(worker->End(attempt)));
  EXPECT_EQ(RaisedOutputs(slots_[0]), 0u);
  FinishOnAnother();
}

TEST_F(SlotRunnerTest, WithdrawnBetweenMicroBatches) {
  job_.RaiseVersions();
  job_.RaiseInput(0);
  auto worker = Start();
  const uint64_t attempt = worker->Send(slots_[0]);
  worker->Await<wire::MicroBatchDone>();
  worker->Cancel(attempt);
  EXPECT_TRUE(std::holds_alternative<wire::Withdrawn>(worker->End(attempt)));
  const size_t raised = RaisedOutputs(slots_[0]);
  EXPECT_LE(raised, slots_[0].outputs.size() / 4);
  for (size_t m = 1; m < 4; ++m) job_.RaiseInput(m);
  EXPECT_EQ(RaisedOutputs(slots_[0]), raised);
  FinishOnAnother();
}

TEST_F(SlotRunnerTest, WithdrawnWhileItsOutputDownloads) {
  job_.RaiseVersions();
  job_.RaiseInput(0);
  TestWorkerOptions options;
  options.runner.link_gbps = 0.005;
  auto worker = Start(nullptr, options);
  const uint64_t attempt = worker->Send(slots_[0]);
  worker->Await<wire::MicroBatchDone>();
  worker->Cancel(attempt);
  const wire::Body end = worker->End(attempt);
  ASSERT_TRUE(std::holds_alternative<wire::Withdrawn>(end));
  std::vector<std::string> unraised;
  for (const wire::SlotOutput& output : slots_[0].outputs) {
    if (job_.WordValue(output.raise) == 0) {
      unraised.push_back(job_.Bytes(output.buffer));
    }
  }
  EXPECT_FALSE(unraised.empty());
  worker.reset();  // whatever it had in flight would be written by now
  size_t i = 0;
  for (const wire::SlotOutput& output : slots_[0].outputs) {
    if (job_.WordValue(output.raise) == 0) {
      EXPECT_EQ(job_.Bytes(output.buffer), unraised.at(i++));
    }
  }
  for (size_t m = 1; m < 4; ++m) job_.RaiseInput(m);
  FinishOnAnother();
}

TEST_F(SlotRunnerTest, WithdrawnInBackwardAfterSomeContributions) {
  RoundShape shape = Shape();
  shape.largest_subtree = 1;
  SlotTestJob job(SmallConfig(4, false), shape, 5);
  const auto slots = job.MakeRound(1);
  job.RaiseVersions();
  job.RaiseInputs();
  const auto reference = job.ComputeReference(FakeStageRuns());
  TestWorkerOptions options;
  options.runner.make_run = FakeStageRuns();
  std::map<uint64_t, wire::SlotDone> done;
  {
    TestWorker worker(job, 0, options);
    for (size_t s = 0; s < 3; ++s) {
      worker.End(worker.Send(slots[s]));
    }
    const uint64_t attempt = worker.Send(slots[3]);
    for (int m = 0; m < 3; ++m) worker.Await<wire::MicroBatchDone>();
    worker.Cancel(attempt);
    const wire::Body end = worker.End(attempt);
    EXPECT_FALSE(std::holds_alternative<wire::Failed>(end));
  }
  std::vector<std::unique_ptr<TestWorker>> workers;
  workers.push_back(std::make_unique<TestWorker>(job, 1, options));
  job.CheckRound(slots, RunSlots(workers, slots), reference);
}

TEST_F(SlotRunnerTest, AFinishedSlotIsAnsweredOnceAndTheNextOneGoesOn) {
  RaiseAll();
  auto worker = Start();
  const uint64_t first = worker->Send(slots_[0]);
  EXPECT_TRUE(std::holds_alternative<wire::SlotDone>(worker->End(first)));
  worker->Cancel(first);
  worker->Send(wire::Withdraw{first});
  const uint64_t second = worker->Send(slots_[1]);
  EXPECT_TRUE(std::holds_alternative<wire::SlotDone>(worker->End(second)));
  size_t ends = 0;
  for (const wire::Message& event : worker->events()) {
    if (event.attempt == first &&
        (std::holds_alternative<wire::SlotDone>(event.body) ||
         std::holds_alternative<wire::Withdrawn>(event.body))) {
      ++ends;
    }
  }
  EXPECT_EQ(ends, 1u);
}

TEST_F(SlotRunnerTest, WithdrawingInReverseOrderFreesEverySlot) {
  auto worker = Start();
  std::vector<uint64_t> attempts;
  for (size_t s = 0; s < 4; ++s) attempts.push_back(worker->Send(slots_[s]));
  for (size_t s = 4; s-- > 0;) {
    worker->Cancel(attempts[s]);
    EXPECT_TRUE(
        std::holds_alternative<wire::Withdrawn>(worker->End(attempts[s])));
  }
  RaiseAll();
  const auto workers_done = [&] {
    auto workers = Fleet(std::move(worker));
    return RunSlots(workers, slots_);
  }();
  job_.CheckRound(slots_, workers_done, reference_);
}

// --- replay ---

TEST_F(SlotRunnerTest, AReplayNeverWritesBehindARaisedWord) {
  RaiseAll();
  auto workers = Fleet(Start());
  RunSlots(workers, slots_);
  // Everything is raised; a mark in each buffer shows whether it is written.
  for (const wire::SlotOutput& output : slots_[0].outputs) {
    *job_.arena().Bytes(output.buffer) = std::byte{0xa5};
  }
  const uint64_t attempt = workers[0]->Send(slots_[0]);
  const wire::Body end = workers[0]->End(attempt);
  const auto& done = std::get<wire::SlotDone>(end);
  EXPECT_EQ(done.bytes[1][2], 0u);
  for (const wire::SlotOutput& output : slots_[0].outputs) {
    EXPECT_EQ(*job_.arena().Bytes(output.buffer), std::byte{0xa5});
  }
}

TEST_F(SlotRunnerTest, AReplayFillsInWhatTheFirstAttemptLeft) {
  job_.RaiseVersions();
  job_.RaiseInput(0);
  job_.RaiseInput(1);
  {
    auto worker = Start();
    const uint64_t attempt = worker->Send(slots_[0]);
    worker->Await<wire::MicroBatchDone>();
    worker->Await<wire::MicroBatchDone>();
    worker->Cancel(attempt);
    worker->End(attempt);
  }
  const size_t raised = RaisedOutputs(slots_[0]);
  for (const wire::SlotOutput& output : slots_[0].outputs) {
    if (job_.WordValue(output.raise) != 0) continue;
    std::byte* bytes = job_.arena().Bytes(output.buffer);
    std::fill(bytes, bytes + output.buffer.bytes, std::byte{0x5a});
  }
  job_.RaiseInput(2);
  job_.RaiseInput(3);
  auto workers = Fleet(Start());
  const auto done = RunSlots(workers, slots_);
  job_.CheckRound(slots_, done, reference_);
  const uint64_t each = slots_[0].outputs[0].buffer.bytes;
  EXPECT_EQ(done.at(slots_[0].slot).bytes[1][2],
            (slots_[0].outputs.size() - raised) * each);
}

// --- memory ---

uint64_t NeedOf(SlotTestJob& job, const wire::RunSlot& slot) {
  const auto tables = *ReadJobTables(job.arena(), job.layout_offset());
  return PlanSlot(slot, *tables, job.arena().size_bytes(), {UINT64_MAX})
      ->device_bytes();
}

TEST_F(SlotRunnerTest, ASlotThatDoesNotFitFailsNamingBytes) {
  RaiseAll();
  const uint64_t need = NeedOf(job_, slots_[0]);
  TestWorkerOptions options;
  options.device_memory_bytes = need - 1;
  auto worker = Start(nullptr, options);
  const wire::Body end = worker->End(worker->Send(slots_[0]));
  const auto& failed = std::get<wire::Failed>(end);
  EXPECT_EQ(failed.code,
            static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
  EXPECT_NE(failed.text.find(std::to_string(need)), std::string::npos);
  EXPECT_NE(failed.text.find(std::to_string(need - 1)), std::string::npos);
}

TEST_F(SlotRunnerTest, ARoundRunsInTheMemoryOfItsLargestSlot) {
  RaiseAll();
  uint64_t need = 0;
  for (const wire::RunSlot& slot : slots_) {
    need = std::max(need, NeedOf(job_, slot));
  }
  TestWorkerOptions options;
  options.device_memory_bytes = need;
  auto workers = Fleet(Start(nullptr, options));
  const auto done = RunSlots(workers, slots_);
  job_.CheckRound(slots_, done, reference_);
  for (const auto& [slot, one] : done) {
    EXPECT_LE(one.device_memory_peak_bytes, need);
  }
}

TEST_F(SlotRunnerTest, TheNextSlotsWeightsAreUploadedMeanwhile) {
  RaiseAll();
  Gate gate;
  auto worker = Start(gate.Before(0));
  const uint64_t first = worker->Send(slots_[0]);
  gate.AwaitReached();
  const uint64_t before = worker->device().memory().used_bytes;
  const uint64_t second = worker->Send(slots_[1]);
  uint64_t weights = 0;
  for (const auto& unit : slots_[1].units) {
    weights += DeviceBytes(unit.weights.bytes);
  }
  // The first slot stands still all the while.
  while (worker->device().memory().used_bytes < before + weights) {
    std::this_thread::yield();
  }
  gate.Open();
  EXPECT_TRUE(std::holds_alternative<wire::SlotDone>(worker->End(first)));
  EXPECT_TRUE(std::holds_alternative<wire::SlotDone>(worker->End(second)));
}

// --- transfers ---

TEST_F(SlotRunnerTest, OnASlowLinkNoActivationWaitsForMoreThanOneChunk) {
  RaiseAll();
  auto ends = *wire::Channel::Pair();
  Outbox outbox(*ends.first);
  const auto device = NewCpuDevice(64 << 20);
  SlotRunnerOptions options;
  options.make_run = FakeStageRuns();
  options.link_gbps = 0.2;
  options.chunk_bytes = 512;
  const auto runner =
      *SlotRunner::Create(options, *device, job_.arena(), 0, outbox);
  const auto tables = *ReadJobTables(job_.arena(), job_.layout_offset());
  for (size_t s = 0; s < 4; ++s) {
    runner->Submit(s + 1, 0, slots_[s], tables);
  }
  std::map<uint64_t, wire::SlotDone> done;
  while (done.size() < 4) {
    const wire::Message message = *ends.second->Receive();
    if (const auto* one = std::get_if<wire::SlotDone>(&message.body)) {
      done[one->slot] = *one;
    }
  }
  int64_t longest = 0;
  for (const auto& [slot, one] : done) {
    longest = std::max(longest, one.longest_activation_wait_ns);
  }
  for (const CopyCounters& counters :
       {runner->upload_counters(), runner->download_counters()}) {
    EXPECT_GT(counters.bulk_chunks, 20u);
    EXPECT_GT(counters.activations, 8u);
    EXPECT_LE(counters.most_bulk_chunks_awaited, 1u);
    EXPECT_GE(longest, counters.longest_activation_wait_ns);
  }
}

// --- failure ---

TEST_F(SlotRunnerTest, AFailingLayerFailsItsSlotOnly) {
  RaiseAll();
  bool fail = true;  // read and written by the compute thread
  auto worker = Start([&fail](int64_t layer, bool) {
    if (layer != 1 || !fail) return absl::OkStatus();
    fail = false;
    return absl::InternalError("layer 1 broke");
  });
  const wire::Body end = worker->End(worker->Send(slots_[0]));
  const auto& failed = std::get<wire::Failed>(end);
  EXPECT_EQ(failed.id, slots_[0].slot);
  EXPECT_EQ(failed.code, static_cast<uint32_t>(absl::StatusCode::kInternal));
  EXPECT_EQ(failed.text, "layer 1 broke");
  auto workers = Fleet(std::move(worker));
  job_.CheckRound(slots_, RunSlots(workers, slots_), reference_);
}

// Asked the first time the worker would end (kill_replay_test).
TEST_F(SlotRunnerTest, ASlotThatFindsNoMemoryAgainFails) {
  RaiseAll();
  auto worker = Start([](int64_t, bool) {
    return absl::ResourceExhaustedError("device memory is in pieces");
  });
  wire::RunSlot slot = slots_[0];
  slot.again = true;
  const wire::Body end = worker->End(worker->Send(slot));
  EXPECT_EQ(std::get<wire::Failed>(end).code,
            static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
}

TEST_F(SlotRunnerTest, AnUnknownJobIsRefused) {
  auto worker = Start();
  wire::RunSlot slot = slots_[0];
  slot.job = 77;
  const wire::Body end = worker->End(worker->Send(slot));
  EXPECT_NE(std::get<wire::Failed>(end).text.find("job 77"), std::string::npos);
}

TEST_F(SlotRunnerTest, OneSlotTooManyIsRefused) {
  auto worker = Start();
  for (int i = 0; i < wire::kMaxDispatchedSlots; ++i) {
    worker->Send(slots_[0]);
  }
  const wire::Body end = worker->End(worker->Send(slots_[0]));
  EXPECT_EQ(std::get<wire::Failed>(end).code,
            static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
}

TEST_F(SlotRunnerTest, FrozenUnitsNeedNoSums) {
  for (wire::RunSlot& slot : slots_) slot.contributions.clear();
  RaiseAll();
  auto workers = Fleet(Start());
  const auto done = RunSlots(workers, slots_);
  job_.CheckRound(slots_, done, reference_);
  for (const auto& [slot, one] : done) EXPECT_EQ(one.bytes[1][1], 0u);
}

TEST_F(SlotRunnerTest, StopEndsAWorkerThatWaits) {
  auto worker = Start();
  worker->Send(slots_[0]);
  worker.reset();
  EXPECT_EQ(RaisedOutputs(slots_[0]), 0u);
}

TEST_F(SlotRunnerTest, EvaluationGivesTheSameLosses) {
  RaiseAll();
  auto workers = Fleet(Start());
  const wire::RunSlot evaluate = Evaluation();
  const auto done = RunSlots(workers, {slots_[0], slots_[1], evaluate});
  const auto& results = done.at(evaluate.slot).results;
  ASSERT_EQ(results.size(), reference_.results.size());
  for (size_t m = 0; m < results.size(); ++m) {
    EXPECT_EQ(results[m].loss_sum, reference_.results[m].loss_sum);
  }
}

// It has nothing to send down, so only its computation says that it is done.
TEST_F(SlotRunnerTest, AnEvaluationGivenUpOnTheWayIsNotDone) {
  wire::RunSlot evaluate = Evaluation();
  RaiseAll();
  auto workers = Fleet(Start());
  RunSlots(workers, {slots_[0], slots_[1]});
  Gate gate;
  auto worker = Start(gate.Before(evaluate.first_layer));
  const uint64_t attempt = worker->Send(evaluate);
  gate.AwaitReached();
  worker->Cancel(attempt);
  gate.Open();
  EXPECT_TRUE(std::holds_alternative<wire::Withdrawn>(worker->End(attempt)));
}

class AdapterSlotTest : public SlotRunnerTest {
 protected:
  AdapterSlotTest() : SlotRunnerTest(AdapterShape()) {}

  static RoundShape AdapterShape() {
    RoundShape shape = Shape();
    shape.dtype = DType::kBF16;
    shape.adapter = {
        .rank = 2, .alpha = 4, .dropout = 0.5, .targets = 0b0000101};
    shape.packed = true;
    return shape;
  }
};

TEST_F(AdapterSlotTest, OnlyAdaptersGradientsComeBack) {
  RaiseAll();
  auto workers = Fleet(Start());
  const auto done = RunSlots(workers, slots_);
  job_.CheckRound(slots_, done, reference_);
  for (const wire::RunSlot& slot : slots_) {
    uint64_t expected = 0;
    for (const auto& one : slot.contributions) {
      EXPECT_GT(one.unit, 5u);
      expected += one.buffer.bytes;
    }
    EXPECT_EQ(done.at(slot.slot).bytes[1][1], expected);
  }
  // The first stage's last slot: nothing wants the embedding's gradient.
  EXPECT_TRUE(slots_[4].outputs.empty());
  EXPECT_EQ(done.at(slots_[4].slot).bytes[1][2], 0u);
}

// The key of masks and the step's kind reach the model.
TEST_F(AdapterSlotTest, DropoutFollowsStepMicroBatchAndTrain) {
  RaiseAll();
  auto workers = Fleet(Start());
  const auto output_of = [&](const wire::RunSlot& slot) {
    EXPECT_EQ(RunSlots(workers, {slot}).size(), 1u);
    return job_.Bytes(slot.outputs[1].buffer);
  };
  wire::RunSlot slot = slots_[0];
  for (auto& output : slot.outputs) output.raise = {};
  const std::string first = output_of(slot);
  EXPECT_TRUE(output_of(slot) == first);
  wire::RunSlot other = slot;
  other.step = 4;
  EXPECT_FALSE(output_of(other) == first);
  other = slot;
  other.micro_batches[1].step_index = 7;
  EXPECT_FALSE(output_of(other) == first);
  other = slot;
  other.mode = wire::StepMode::kEvaluate;
  const std::string evaluated = output_of(other);
  EXPECT_FALSE(evaluated == first);
  other.step = 4;
  EXPECT_TRUE(output_of(other) == evaluated);
}

}  // namespace
}  // namespace roundhouse::worker
