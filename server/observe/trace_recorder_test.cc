#include "server/observe/trace_recorder.h"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr int kDevices = 3;
constexpr int64_t kStart = 1000;

using wire::WaitCause;

wire::WaitTimes Waits(std::initializer_list<std::pair<WaitCause, int64_t>> of) {
  wire::WaitTimes waits = {};
  for (const auto& [cause, ns] : of) waits[static_cast<uint32_t>(cause)] = ns;
  return waits;
}

wire::RunSlot Command(uint64_t slot, int64_t step) {
  wire::RunSlot command;
  command.slot = slot;
  command.step = static_cast<uint64_t>(step);
  command.mode = wire::StepMode::kTrain;
  command.kind = SlotKind::kBackward;
  command.first_layer = 2;
  command.last_layer = 4;
  return command;
}

// Ledgers and a recorder that are told the same, in the engine's order.
class TraceRecorderTest : public testing::Test {
 protected:
  TraceRecorderTest() : ledgers_(kDevices, DeviceLedger(kStart)) {
    SetBusy(true, kStart);
  }

  void SetBusy(bool busy, int64_t now) {
    for (DeviceLedger& ledger : ledgers_) ledger.SetBusy(busy, now);
    recorder_.SetBusy(busy, now);
  }
  // True: its copies are wanted.
  bool Send(uint64_t slot, int64_t step, int64_t now,
            const std::string& job = "a") {
    wire::RunSlot command = Command(slot, step);
    recorder_.OnSlotCommand(job, command, now);
    return command.trace;
  }
  void Started(int device, uint64_t slot, int64_t at, wire::WaitTimes waits) {
    ledgers_[device].Started(at, waits, false);
    Tell(device,
         wire::SlotStarted{.slot = slot, .time_ns = at, .waits = waits});
  }
  void Computed(int device, uint64_t slot, int64_t at, wire::WaitTimes waits,
                bool last) {
    if (last) {
      ledgers_[device].Ended(at, waits);
    } else {
      ledgers_[device].Computed(at, waits);
    }
    Tell(device, wire::MicroBatchDone{.slot = slot,
                                      .index = 5,
                                      .last = last,
                                      .time_ns = at,
                                      .waits = waits});
  }
  void Tell(int device, wire::Body body, int64_t now = 0) {
    recorder_.OnDeviceMessage(device, {1, std::move(body)}, now);
  }
  std::shared_ptr<TraceTask> Begin(int64_t steps,
                                   const std::string& job = "a") {
    auto task = std::make_shared<TraceTask>();
    recorder_.Begin(job, steps, task);
    return task;
  }
  static std::shared_ptr<const Trace> TraceOf(const TraceTask& task) {
    const auto result = task.result();
    EXPECT_TRUE(result.has_value());
    EXPECT_TRUE(result->ok()) << result->status();
    return **result;
  }
  static absl::StatusCode CodeOf(const TraceTask& task) {
    const auto result = task.result();
    return result.has_value() ? result->status().code()
                              : absl::StatusCode::kUnknown;
  }
  // "backward 2-4 m5 of a [10,20)", by device and track, in their order.
  static std::vector<std::string> Shown(const Trace& trace, TraceTrack track,
                                        int device = 0) {
    std::vector<TraceInterval> intervals;
    for (const TraceInterval& interval : trace.intervals) {
      if (interval.track == track && interval.device == device) {
        intervals.push_back(interval);
      }
    }
    std::sort(intervals.begin(), intervals.end(),
              [](const auto& a, const auto& b) {
                return a.started_ns < b.started_ns;
              });
    std::vector<std::string> shown;
    for (const TraceInterval& i : intervals) {
      shown.push_back(std::string(i.kind) + " " + std::to_string(i.slot) +
                      " [" + std::to_string(i.started_ns) + "," +
                      std::to_string(i.ended_ns) + ")");
    }
    return shown;
  }
  using Lines = std::vector<std::string>;

  std::vector<DeviceLedger> ledgers_;
  TraceRecorder recorder_{ledgers_};
};

TEST_F(TraceRecorderTest, ARecordingIsOfWholeSteps) {
  EXPECT_FALSE(Send(1, 7, 2000));
  const auto task = Begin(1);
  EXPECT_TRUE(Send(2, 7, 2010));  // of the step that runs
  Started(0, 2, 2020, {});
  Computed(0, 2, 2100, {}, true);
  recorder_.OnStepReduced("a", 7, 2100);
  EXPECT_TRUE(Send(3, 8, 2100));
  recorder_.OnStepDone("a", 7, 2100);
  EXPECT_EQ(task->steps(), 0);
  Started(0, 3, 2150,
          Waits({{WaitCause::kDispatch, 10},
                 {WaitCause::kOptimizer, 30},
                 {WaitCause::kH2D, 10}}));
  Computed(0, 3, 2250, Waits({{WaitCause::kD2H, 20}}), false);
  Computed(0, 3, 2300, {}, true);
  recorder_.OnHostOp("a", {.kind = HostOpKind::kUpdate,
                           .unit = 2,
                           .step = 8,
                           .started_ns = 2310,
                           .ended_ns = 2330});
  recorder_.OnStepReduced("a", 8, 2305);
  EXPECT_FALSE(task->result().has_value());
  recorder_.OnStepDone("a", 8, 2330);

  const auto trace = TraceOf(*task);
  EXPECT_EQ(trace->jobs, Lines{"a"});
  EXPECT_EQ(trace->first_step, 8);
  EXPECT_EQ(trace->step_count, 1);
  EXPECT_EQ(trace->ended_early, "");
  EXPECT_EQ(Shown(*trace, TraceTrack::kWait),
            (Lines{"dispatch 3 [2100,2110)", "optimizer 3 [2110,2140)",
                   "h2d_wait 3 [2140,2150)", "d2h_wait 3 [2150,2170)",
                   "unknown 0 [2300,2330)"}));
  EXPECT_EQ(Shown(*trace, TraceTrack::kCompute),
            (Lines{"backward 3 [2170,2250)", "backward 3 [2250,2300)"}));
  EXPECT_EQ(Shown(*trace, TraceTrack::kSteps), Lines{"step 0 [2100,2305)"});
  EXPECT_EQ(Shown(*trace, TraceTrack::kOptimizer),
            Lines{"optimizer 0 [2310,2330)"});
  const TraceInterval& first = trace->intervals.at(0);
  EXPECT_EQ(first.job, 0);
  EXPECT_EQ(first.step, 8);
  EXPECT_EQ(Shown(*trace, TraceTrack::kWait, 1),
            Lines{"unknown 0 [2100,2330)"});
  EXPECT_EQ(trace->devices[0].started_ns, 2100);
  EXPECT_EQ(trace->devices[0].ended_ns, 2330);
  EXPECT_EQ(trace->devices[0].times.compute_ns, 130);
  EXPECT_EQ(trace->devices[0].times.bubble_ns, 100);
  // Nothing is asked of slots any more.
  EXPECT_FALSE(Send(4, 9, 2400));
}

TEST_F(TraceRecorderTest, CopiesAreTheirSlotsAndOnlyOfTheRecording) {
  const auto task = Begin(1);
  Send(1, 1, 2000);
  wire::SlotDone done{.slot = 1};
  done.copies = {
      {1900, 1999, 8, wire::Direction::kH2D, wire::Purpose::kWeights, 2, -1},
      {2000, 2040, 64, wire::Direction::kH2D, wire::Purpose::kWeights, 3, -1},
      {2050, 2060, 16, wire::Direction::kD2H, wire::Purpose::kActivations, 2,
       5}};
  done.copies_left_out = 7;
  recorder_.OnSlotDone(1, done);
  recorder_.OnStepDone("a", 1, 2100);
  const auto trace = TraceOf(*task);
  EXPECT_EQ(trace->copies_left_out, 7u);
  EXPECT_EQ(Shown(*trace, TraceTrack::kH2D, 1), Lines{"weights 1 [2000,2040)"});
  EXPECT_EQ(Shown(*trace, TraceTrack::kD2H, 1),
            Lines{"activations 1 [2050,2060)"});
  const TraceInterval& down = trace->intervals.at(1);
  EXPECT_EQ(std::make_tuple(down.layer_begin, down.layer_end, down.micro_batch,
                            down.bytes, down.job),
            std::make_tuple(2, 3, 5, 16u, 0));
}

TEST_F(TraceRecorderTest, OtherJobsSlotsAreNamed) {
  const auto task = Begin(1);
  EXPECT_TRUE(Send(1, 40, 2000, "b"));  // another job's step begins nothing
  Send(2, 3, 2010);
  Started(0, 1, 2020, {});
  Computed(0, 1, 2050, {}, true);
  Tell(0, wire::SlotStarted{.slot = uint64_t{1} << 40, .time_ns = 2060});
  Tell(0, wire::SampleDone{.sample = uint64_t{1} << 40, .ended_ns = 2090});
  recorder_.OnStepReduced("b", 40, 2095);
  recorder_.OnStepDone("b", 40, 2100);
  recorder_.OnStepDone("a", 3, 2100);
  const auto trace = TraceOf(*task);
  EXPECT_EQ(trace->jobs, (Lines{"a", "b"}));
  EXPECT_EQ(Shown(*trace, TraceTrack::kCompute),
            (Lines{"backward 1 [2020,2050)", "sample 0 [2060,2090)"}));
  EXPECT_TRUE(Shown(*trace, TraceTrack::kSteps).empty());
  const auto of_b = std::find_if(
      trace->intervals.begin(), trace->intervals.end(),
      [](const auto& i) { return i.track == TraceTrack::kCompute; });
  EXPECT_EQ(of_b->job, 1);
  EXPECT_EQ(of_b->step, 40);
}

TEST_F(TraceRecorderTest, WaitsThatBeganEarlierAreCutAsInTheLedger) {
  const auto task = Begin(1);
  Send(1, 1, 5000);
  recorder_.OnStepDone("a", 1, 5000);  // a trace of nothing
  EXPECT_TRUE(TraceOf(*task)->devices[0].times.compute_ns == 0);
  const auto again = Begin(1);
  Send(2, 2, 5000);
  Started(0, 2, 5030,
          Waits({{WaitCause::kDispatch, 900}, {WaitCause::kData, 20}}));
  Computed(0, 2, 5040, Waits({{WaitCause::kH2D, 90}}), true);
  recorder_.OnStepDone("a", 2, 5040);
  EXPECT_EQ(Shown(*TraceOf(*again), TraceTrack::kWait),
            (Lines{"dispatch 2 [5000,5010)", "data 2 [5010,5030)",
                   "h2d_wait 2 [5030,5040)"}));
}

TEST_F(TraceRecorderTest, WhatWasGivenUpOrIsNotOverHasItsName) {
  const auto task = Begin(1);
  for (uint64_t slot = 1; slot <= 4; ++slot) Send(slot, 1, 2000);
  Started(0, 1, 2000, {});
  ledgers_[0].GaveUp(2040);
  Tell(0, wire::Withdrawn{1}, 2040);
  Started(1, 2, 2000, {});
  ledgers_[1].GaveUp(2050);
  recorder_.OnWorkerDown(1, 2050);
  Started(2, 3, 2000, {});
  ledgers_[2].Fence(2060);
  recorder_.OnDeviceLost(2, 2060);
  recorder_.OnStepDone("a", 1, 2100);
  const auto trace = TraceOf(*task);
  EXPECT_EQ(Shown(*trace, TraceTrack::kCompute, 0),
            Lines{"given_up 1 [2000,2040)"});
  EXPECT_EQ(Shown(*trace, TraceTrack::kCompute, 1),
            Lines{"given_up 2 [2000,2050)"});
  EXPECT_EQ(Shown(*trace, TraceTrack::kWait, 1).back(),
            "unknown 0 [2050,2100)");
  EXPECT_EQ(Shown(*trace, TraceTrack::kWait, 2).back(), "fenced 0 [2060,2100)");
  EXPECT_EQ(trace->devices[2].times.fenced_ns, 40);
}

TEST_F(TraceRecorderTest, NobodysWorkIsIdleTime) {
  const auto task = Begin(1);
  Send(1, 1, 2000);
  Started(0, 1, 2000, {});
  Computed(0, 1, 2010, {}, true);
  SetBusy(false, 2030);
  recorder_.OnStepDone("a", 1, 2100);
  const auto trace = TraceOf(*task);
  const Lines waits = Shown(*trace, TraceTrack::kWait);
  ASSERT_GE(waits.size(), 2u);
  EXPECT_EQ(waits[waits.size() - 2], "unknown 0 [2010,2030)");
  EXPECT_EQ(waits.back(), "idle 0 [2030,2100)");
  EXPECT_EQ(trace->devices[0].times.idle_ns, 70);
}

TEST_F(TraceRecorderTest, AnEarlyEndGivesTheWholeStepsThereAre) {
  const auto task = Begin(3);
  Send(1, 5, 2000);
  recorder_.OnStepDone("a", 5, 2100);
  Send(2, 6, 2100);
  recorder_.OnJobStopped("b", "another one", 2200);
  EXPECT_FALSE(task->result().has_value());
  recorder_.OnJobStopped("a", "the job is PAUSED", 2200);
  const auto trace = TraceOf(*task);
  EXPECT_EQ(trace->step_count, 1);
  EXPECT_EQ(trace->ended_early, "the job is PAUSED");

  const auto none = Begin(3);
  recorder_.OnJobStopped("a", "the job is CANCELLED", 2200);
  EXPECT_EQ(CodeOf(*none), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(Send(3, 1, 2200));
}

TEST_F(TraceRecorderTest, OneAtATimeUntilItIsNotWanted) {
  const auto first = Begin(3);
  const auto second = Begin(3, "b");
  EXPECT_EQ(CodeOf(*second), absl::StatusCode::kResourceExhausted);
  Send(1, 1, 2000);
  first->Cancel();
  recorder_.Tick();
  EXPECT_EQ(CodeOf(*first), absl::StatusCode::kCancelled);
  EXPECT_FALSE(Send(2, 1, 2100));
  const auto third = Begin(3, "b");
  third->Cancel();
  const auto fourth = Begin(3);  // need not wait for a tick
  EXPECT_FALSE(fourth->result().has_value());
}

TEST_F(TraceRecorderTest, TooManyIntervalsAreAnError) {
  const auto task = Begin(1);
  Send(1, 1, 2000);
  Started(0, 1, 2000, {});
  for (int64_t i = 1; i <= int64_t{kMaxTraceIntervals} + 1; ++i) {
    Computed(0, 1, 2000 + i, {}, false);
  }
  EXPECT_EQ(CodeOf(*task), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(task->result()->status().message().find("ask for fewer steps"),
            std::string::npos);
  EXPECT_FALSE(Begin(1)->result().has_value());
}

// Whatever devices do: a device's compute and wait tracks cover its span once,
// and agree with its ledger.
TEST_F(TraceRecorderTest, IntervalsSayWhatTheLedgersSay) {
  std::mt19937_64 random(8);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  struct Doing {
    uint64_t slot = 0;
    int64_t at = 2000;
  };
  std::vector<Doing> doing(kDevices);
  uint64_t next_slot = 1;
  const auto act = [&](int device) {
    Doing& does = doing[device];
    does.at += below(50);
    wire::WaitTimes waits = {};
    for (int64_t& wait : waits) wait = below(3) == 0 ? below(20) : 0;
    if (does.slot == 0) {
      does.slot = next_slot++;
      Send(does.slot, 3, does.at);
      Started(device, does.slot, does.at, waits);
    } else if (below(20) == 0) {
      ledgers_[device].GaveUp(does.at);
      Tell(device, wire::Withdrawn{does.slot}, does.at);
      does.slot = 0;
    } else {
      const bool last = below(3) == 0;
      Computed(device, does.slot, does.at, waits, last);
      if (last) does.slot = 0;
    }
    if (below(10) == 0 && does.slot == 0) ledgers_[device].TakeNew(does.at);
  };
  for (int i = 0; i < 300; ++i) act(static_cast<int>(below(kDevices)));
  const auto task = Begin(1);
  Send(next_slot++, 4, 0);
  for (int i = 0; i < 3000; ++i) act(static_cast<int>(below(kDevices)));
  recorder_.OnStepDone("a", 4, 0);
  const auto trace = TraceOf(*task);
  for (int device = 0; device < kDevices; ++device) {
    std::vector<TraceInterval> track;
    int64_t compute_ns = 0;
    std::map<std::string, int64_t> waits;
    for (const TraceInterval& interval : trace->intervals) {
      const bool compute = interval.track == TraceTrack::kCompute;
      if (interval.device != device ||
          (!compute && interval.track != TraceTrack::kWait)) {
        continue;
      }
      track.push_back(interval);
      const int64_t ns = interval.ended_ns - interval.started_ns;
      if (compute) compute_ns += ns;
      if (!compute) waits[std::string(interval.kind)] += ns;
    }
    std::sort(track.begin(), track.end(), [](const auto& a, const auto& b) {
      return a.started_ns < b.started_ns;
    });
    const TracedDevice& traced = trace->devices[device];
    int64_t at = traced.started_ns;
    for (const TraceInterval& interval : track) {
      EXPECT_EQ(interval.started_ns, at);
      at = interval.ended_ns;
    }
    EXPECT_EQ(at, traced.ended_ns);
    EXPECT_GT(compute_ns, 0);
    EXPECT_EQ(compute_ns, traced.times.compute_ns);
    EXPECT_EQ(at - traced.started_ns - compute_ns, traced.times.bubble_ns);
    EXPECT_GE(waits.size(), 7u);
  }
}

}  // namespace
}  // namespace roundhouse
