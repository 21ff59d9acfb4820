#include "server/observe/trace_recorder.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/observe/metrics.h"

namespace roundhouse {
namespace {

using wire::WaitCause;

// In which a device's wait for several things is laid out.
constexpr WaitCause kWaitOrder[] = {
    WaitCause::kDispatch,   WaitCause::kOptimizer, WaitCause::kData,
    WaitCause::kDependency, WaitCause::kMemory,    WaitCause::kD2H,
    WaitCause::kH2D};
static_assert(std::size(kWaitOrder) == wire::kWaitCauses);

// As a planned timeline has them.
absl::string_view PurposeName(wire::Purpose purpose) {
  switch (purpose) {
    case wire::Purpose::kWeights:
      return "weights";
    case wire::Purpose::kGradients:
      return "gradients";
    case wire::Purpose::kActivations:
      return "activations";
    case wire::Purpose::kOther:
      break;
  }
  return "other";
}

struct HostTrack {
  TraceTrack track;
  absl::string_view kind;
};

HostTrack TrackOf(HostOpKind kind) {
  switch (kind) {
    case HostOpKind::kGather:
      return {TraceTrack::kGather, "gather"};
    case HostOpKind::kReduce:
      return {TraceTrack::kReduce, "reduce"};
    case HostOpKind::kUpdate:
      break;
  }
  return {TraceTrack::kOptimizer, "optimizer"};
}

DeviceTimes Minus(const DeviceTimes& a, const DeviceTimes& b) {
  return {.compute_ns = a.compute_ns - b.compute_ns,
          .bubble_ns = a.bubble_ns - b.bubble_ns,
          .idle_ns = a.idle_ns - b.idle_ns,
          .fenced_ns = a.fenced_ns - b.fenced_ns};
}

}  // namespace

// --- the recording ---

void TraceRecorder::Begin(const std::string& job, int64_t steps,
                          std::shared_ptr<TraceTask> task) {
  Tick();
  if (task_ != nullptr) {
    task->Finish(absl::ResourceExhaustedError(absl::StrCat(
        "a trace of ", job_, " is being recorded; try again when it is over")));
    return;
  }
  task_ = std::move(task);
  job_ = job;
  wanted_steps_ = steps;
  after_step_ = newest_step_[job];
}

void TraceRecorder::Start(int64_t step, int64_t now_ns) {
  trace_ = std::make_shared<Trace>();
  trace_->jobs.push_back(job_);
  trace_->first_step = step;
  trace_->started_ns = step_began_ns_ = now_ns;
  trace_->start_time = WallTime();
  for (size_t i = 0; i < devices_.size(); ++i) {
    DeviceLedger& ledger = ledgers_[i];
    ledger.PassTime(now_ns);
    devices_[i].told_ns = ledger.accounted_ns();
    trace_->devices.push_back(
        {.started_ns = ledger.accounted_ns(), .times = ledger.total()});
  }
}

void TraceRecorder::Stop(int64_t now_ns) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    DeviceLedger& ledger = ledgers_[i];
    ledger.PassTime(now_ns);
    // Its cause comes when it is over.
    if (devices_[i].computing == 0) {
      AddSpan(static_cast<int>(i), TraceTrack::kWait, IdleKind(devices_[i]), 0,
              ledger.accounted_ns());
    }
    if (!recording()) return;
    TracedDevice& traced = trace_->devices[i];
    traced.ended_ns = std::max(traced.started_ns, devices_[i].told_ns);
    traced.times = Minus(ledger.total(), traced.times);
  }
  task_->Finish(std::shared_ptr<const Trace>(std::move(trace_)));
  Drop();
}

void TraceRecorder::Drop() {
  task_ = nullptr;
  trace_ = nullptr;
}

void TraceRecorder::Fail(const absl::Status& why) {
  task_->Finish(why);
  Drop();
}

void TraceRecorder::Tick() {
  if (task_ != nullptr && task_->cancelled()) {
    Fail(absl::CancelledError("the trace is not wanted any more"));
  }
}

void TraceRecorder::Add(const TraceInterval& interval) {
  if (!recording() || interval.ended_ns <= interval.started_ns) return;
  if (trace_->intervals.size() < kMaxTraceIntervals) {
    trace_->intervals.push_back(interval);
    return;
  }
  Fail(absl::ResourceExhaustedError(absl::StrCat(
      "the trace has more than ", kMaxTraceIntervals, " intervals after ",
      task_->steps(), " steps: ask for fewer steps")));
}

int TraceRecorder::JobIndex(const std::string& job) {
  std::vector<std::string>& jobs = trace_->jobs;
  const auto found = std::find(jobs.begin(), jobs.end(), job);
  if (found != jobs.end()) return static_cast<int>(found - jobs.begin());
  jobs.push_back(job);
  return static_cast<int>(jobs.size()) - 1;
}

// Nothing is known of a sample, which is no slot.
TraceInterval TraceRecorder::IntervalOf(uint64_t slot) {
  TraceInterval interval;
  const auto known = slots_.find(slot);
  if (known == slots_.end()) return interval;
  interval.kind = known->second.kind;
  interval.layer_begin = known->second.layer_begin;
  interval.layer_end = known->second.layer_end;
  interval.job = JobIndex(known->second.job);
  interval.step = known->second.step;
  interval.slot = slot;
  return interval;
}

// --- what the jobs do ---

void TraceRecorder::OnSlotCommand(const std::string& job,
                                  wire::RunSlot& command, int64_t now_ns) {
  slots_[command.slot] = {.job = job,
                          .kind = SlotKindName(command.kind),
                          .layer_begin = static_cast<int>(command.first_layer),
                          .layer_end = static_cast<int>(command.last_layer) + 1,
                          .step = static_cast<int64_t>(command.step)};
  const auto step = static_cast<int64_t>(command.step);
  if (command.mode == wire::StepMode::kTrain) {
    int64_t& newest = newest_step_[job];
    newest = std::max(newest, step);
  }
  if (task_ == nullptr) return;
  command.trace = true;
  if (!recording() && job == job_ && command.mode == wire::StepMode::kTrain &&
      step > after_step_) {
    Start(step, now_ns);
  }
}

void TraceRecorder::OnSlotDone(int device, const wire::SlotDone& done) {
  if (recording()) trace_->copies_left_out += done.copies_left_out;
  for (const wire::CopyInterval& copy : done.copies) {
    if (!recording()) break;
    if (copy.ended_ns <= trace_->started_ns) continue;
    TraceInterval interval = IntervalOf(done.slot);
    interval.track = copy.direction == wire::Direction::kH2D ? TraceTrack::kH2D
                                                             : TraceTrack::kD2H;
    interval.device = device;
    interval.kind = PurposeName(copy.purpose);
    interval.layer_begin = static_cast<int>(copy.layer);
    interval.layer_end = interval.layer_begin + 1;
    interval.micro_batch = copy.micro_batch;
    interval.started_ns = copy.started_ns;
    interval.ended_ns = copy.ended_ns;
    interval.bytes = copy.bytes;
    Add(interval);
  }
  slots_.erase(done.slot);
}

void TraceRecorder::OnHostOp(const std::string& job, const HostOpTimes& work) {
  if (!recording() || work.ended_ns <= trace_->started_ns) return;
  const HostTrack host = TrackOf(work.kind);
  Add({.track = host.track,
       .kind = host.kind,
       .unit = work.unit,
       .job = JobIndex(job),
       .step = work.step,
       .started_ns = work.started_ns,
       .ended_ns = work.ended_ns});
}

void TraceRecorder::OnStepReduced(const std::string& job, int64_t step,
                                  int64_t now_ns) {
  if (!recording() || job != job_) return;
  const int64_t began_ns = std::exchange(step_began_ns_, now_ns);
  if (step < trace_->first_step) return;  // it went on when the next one began
  Add({.track = TraceTrack::kSteps,
       .kind = "step",
       .job = 0,
       .step = step,
       .started_ns = began_ns,
       .ended_ns = now_ns});
}

void TraceRecorder::OnStepDone(const std::string& job, int64_t step,
                               int64_t now_ns) {
  if (!recording() || job != job_ || step < trace_->first_step) return;
  trace_->step_count = step - trace_->first_step + 1;
  task_->SetSteps(trace_->step_count);
  if (trace_->step_count == wanted_steps_) Stop(now_ns);
}

void TraceRecorder::OnJobStopped(const std::string& job, const std::string& why,
                                 int64_t now_ns) {
  newest_step_.erase(job);
  std::erase_if(slots_,
                [&](const auto& slot) { return slot.second.job == job; });
  if (task_ == nullptr || job != job_) return;
  if (!recording() || trace_->step_count == 0) {
    Fail(absl::FailedPreconditionError(
        absl::StrCat("no whole step could be traced: ", why)));
    return;
  }
  trace_->ended_early = why;
  Stop(now_ns);
}

// --- what the devices say ---

void TraceRecorder::OnDeviceMessage(int device, const wire::Message& message,
                                    int64_t now_ns) {
  const wire::Body& body = message.body;
  if (const auto* started = std::get_if<wire::SlotStarted>(&body)) {
    if (!started->backfill) OnStarted(device, *started);
  } else if (const auto* part = std::get_if<wire::BackfillComputed>(&body)) {
    OnBackfillComputed(device, *part);
  } else if (const auto* done = std::get_if<wire::MicroBatchDone>(&body)) {
    if (done->last) devices_[device].computing = 0;
    OnComputed(device, done->slot, done->time_ns, done->waits,
               static_cast<int>(done->index));
  } else if (const auto* sample = std::get_if<wire::SampleDone>(&body)) {
    devices_[device].computing = 0;
    OnComputed(device, sample->sample, sample->ended_ns, {}, -1);
  } else if (const auto* out = std::get_if<wire::Withdrawn>(&body)) {
    OnGivenUp(device, out->slot, now_ns);
  } else if (const auto* failed = std::get_if<wire::Failed>(&body)) {
    OnGivenUp(device, failed->id, now_ns);
  }
}

void TraceRecorder::OnStarted(int device, const wire::SlotStarted& started) {
  Device& told = devices_[device];
  if (told.computing != 0) {  // it was given up on the way
    const int64_t waited =
        std::accumulate(started.waits.begin(), started.waits.end(), int64_t{0});
    AddSpan(device, TraceTrack::kCompute, "given_up", told.computing,
            started.time_ns - waited);
  }
  AddWaits(device, started.waits, started.slot, started.time_ns);
  told.computing = started.slot;
}

void TraceRecorder::OnComputed(int device, uint64_t slot, int64_t until_ns,
                               const wire::WaitTimes& waits, int micro_batch) {
  Device& told = devices_[device];
  if (!recording()) return;
  const int64_t waited =
      std::accumulate(waits.begin(), waits.end(), int64_t{0});
  AddWaits(device, waits, slot, std::min(until_ns, told.told_ns + waited));
  if (!recording()) return;
  TraceInterval interval = IntervalOf(slot);
  if (interval.kind.empty()) interval.kind = "sample";
  interval.device = device;
  interval.micro_batch = micro_batch;
  interval.started_ns = told.told_ns;
  interval.ended_ns = until_ns;
  told.told_ns = std::max(told.told_ns, until_ns);
  Add(interval);
}

// It lies in a wait, which is told when it is over.
void TraceRecorder::OnBackfillComputed(int device,
                                       const wire::BackfillComputed& part) {
  if (!recording()) return;
  TraceInterval interval = IntervalOf(part.slot);
  if (interval.kind.empty()) return;
  interval.track = TraceTrack::kBackfill;
  interval.device = device;
  interval.micro_batch = static_cast<int>(part.index);
  interval.started_ns = std::max(part.started_ns, trace_->started_ns);
  interval.ended_ns = part.ended_ns;
  Add(interval);
}

void TraceRecorder::OnGivenUp(int device, uint64_t slot, int64_t now_ns) {
  Device& told = devices_[device];
  if (told.computing == slot && slot != 0) {
    AddSpan(device, TraceTrack::kCompute, "given_up", slot, now_ns);
    told.computing = 0;
  }
  slots_.erase(slot);
}

void TraceRecorder::OnWorkerDown(int device, int64_t now_ns) {
  const uint64_t slot = std::exchange(devices_[device].computing, 0);
  if (slot == 0) return;
  AddSpan(device, TraceTrack::kCompute, "given_up", slot, now_ns);
}

void TraceRecorder::OnDeviceLost(int device, int64_t now_ns) {
  OnWorkerDown(device, now_ns);
  AddSpan(device, TraceTrack::kWait, IdleKind(devices_[device]), 0, now_ns);
  devices_[device].lost = true;
}

void TraceRecorder::OnDeviceUp(int device, int64_t now_ns) {
  if (!devices_[device].lost) return;
  AddSpan(device, TraceTrack::kWait, IdleKind(devices_[device]), 0, now_ns);
  devices_[device].lost = false;
}

// What a device waited for until nobody has work is not told.
void TraceRecorder::SetBusy(bool busy, int64_t now_ns) {
  if (busy == busy_) return;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].computing != 0) continue;
    AddSpan(static_cast<int>(i), TraceTrack::kWait, IdleKind(devices_[i]), 0,
            now_ns);
  }
  busy_ = busy;
}

absl::string_view TraceRecorder::IdleKind(const Device& device) const {
  return device.lost ? "fenced" : busy_ ? "unknown" : "idle";
}

void TraceRecorder::AddSpan(int device, TraceTrack track,
                            absl::string_view kind, uint64_t slot,
                            int64_t until_ns) {
  if (!recording()) return;
  TraceInterval interval = IntervalOf(slot);
  interval.track = track;
  interval.device = device;
  interval.kind = kind;
  interval.started_ns = devices_[device].told_ns;
  interval.ended_ns = until_ns;
  devices_[device].told_ns = std::max(devices_[device].told_ns, until_ns);
  Add(interval);
}

// From the last one backwards, so that what is too much goes from the wait for
// the slot, as in the ledger.
void TraceRecorder::AddWaits(int device, wire::WaitTimes waits, uint64_t slot,
                             int64_t until_ns) {
  if (!recording()) return;
  int64_t& told_ns = devices_[device].told_ns;
  int64_t left = std::max<int64_t>(0, until_ns - told_ns);
  for (int i = wire::kWaitCauses - 1; i >= 0; --i) {
    int64_t& wait = waits[static_cast<uint32_t>(kWaitOrder[i])];
    wait = std::clamp<int64_t>(i == 0 ? left : wait, 0, left);
    left -= wait;
  }
  for (const WaitCause cause : kWaitOrder) {
    AddSpan(device, TraceTrack::kWait, WaitCauseName(cause), slot,
            told_ns + waits[static_cast<uint32_t>(cause)]);
  }
}

}  // namespace roundhouse
