#include "scheduler/simulate/step_run.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/log.h"

namespace roundhouse {
namespace {

// More than any model has.
constexpr int64_t kLayersInRank = 1024;
// The rank of backfill jobs' transfers: they come after all others and give way
// to them.
constexpr int64_t kBackfillRank = kBulkRank << 10;

int64_t LayerNs(const ModelCosts& costs, WorkKind kind, int layer) {
  switch (kind) {
    case WorkKind::kForward:
    case WorkKind::kHeadForward:
      return costs.ForwardNs(layer);
    case WorkKind::kRecompute:
      return costs.RecomputeNs(layer);
    case WorkKind::kFused:
      return costs.ForwardNs(layer) + costs.BackwardNs(layer);
    default:
      return costs.BackwardNs(layer);
  }
}

// The frozen bytes of a layer's weights: no update writes them.
int64_t FrozenBytes(const ModelCosts& costs, int layer) {
  return std::max<int64_t>(
      0, costs.WeightBytes(layer) - costs.GradientBytes(layer));
}

Transfers::Options TransferOptions(const std::vector<SimulatedJob>& jobs,
                                   const StepOptions& options) {
  Transfers::Options transfers;
  transfers.chunk_bytes = options.chunk_bytes;
  transfers.intervals = options.intervals;
  transfers.priorities = options.ideas.priorities;
  transfers.update_rate = MostUpdateBytesRate(Updates::kAsReduced);
  for (const SimulatedJob& job : jobs) {
    if (!IsOnePass(job.rounds.updates)) continue;
    transfers.update_rate = MostUpdateBytesRate(job.rounds.updates);
  }
  return transfers;
}

}  // namespace

StepRun::StepRun(const Machine& machine, const std::vector<SimulatedJob>& jobs,
                 const StepOptions& options,
                 const std::vector<DeviceLoss>& losses, PartFeed& feed)
    : machine_(machine),
      options_(options),
      feed_(feed),
      losses_(losses.begin(), losses.end()),
      transfers_(machine, TransferOptions(jobs, options), schedule_),
      devices_(machine.devices.size()),
      total_speed_(machine.TotalSpeed()) {
  schedule_.device_count = machine.device_count();
  std::stable_sort(losses_.begin(), losses_.end(),
                   [](const DeviceLoss& a, const DeviceLoss& b) {
                     return a.at_ns < b.at_ns;
                   });
  int parts = 0;
  for (const SimulatedJob& job : jobs) {
    HostWork::Rounds rounds = job.rounds;
    rounds.directed = feed.directs_host();
    rounds.per_layer = options.ideas.per_layer;
    jobs_.push_back(std::make_unique<JobRun>(
        JobRun::Place{static_cast<int>(jobs_.size()), parts}, *job.costs,
        job.parts, rounds, options.contributions, options.fused));
    parts += static_cast<int>(job.parts.size());
    for (const Part& part : job.parts) {
      job_of_.push_back(jobs_.back().get());
      compute_ns_ += static_cast<double>(PartNs(part, *job.costs));
    }
    if (rounds.steps > 1) {
      first_step_left_ += static_cast<int>(job.parts.size()) / rounds.steps;
    }
    jobs_.back()->PublishNextRows();
    backfill_rank_.push_back(0);
    parts_left_.push_back(static_cast<int>(job.parts.size()));
  }
  device_of_.assign(parts, -1);
  down_left_.assign(parts, 0);
  attempts_ = parts;
  compute_left_ns_ = compute_ns_;
  schedule_.computed_ns.resize(jobs_[0]->rounds().count());
  if (first_step_left_ == 0) give_up_after_ns_ = options.give_up_ns;
  for (DeviceRun& device : devices_) device.lanes.resize(jobs.size());
  if (jobs.size() > 1) schedule_.ready_idle_ns.resize(devices_.size());
}

Schedule StepRun::Run() {
  while (true) {
    TakeDecisions();
    int d = 0;
    for (DeviceRun& device : devices_) {
      if (device.changed) StartCompute(d);
      if (device.changed || device.input_came) {
        QueueUploads(d);
        device.changed = device.input_came = false;
      }
      ++d;
    }
    transfers_.Start();
    const int64_t next_ns = NextEventNs();
    if (next_ns == TransferRates::kNever) break;
    if (MayGiveUp()) {
      schedule_.missing = compute_left_ns_ / compute_ns_;
      return std::move(schedule_);
    }
    CountReadyIdle(next_ns);
    now_ns_ = next_ns;
    transfers_.AdvanceTo(now_ns_);
    d = compute_end_ns_ <= now_ns_ ? 0 : machine_.device_count();
    for (; d < machine_.device_count(); ++d) {
      if (devices_[d].op_end_ns <= now_ns_) EndCompute(d);
    }
    for (const auto& ended : transfers_.TakeEnded()) EndTransfer(ended);
    while (!losses_.empty() && losses_.front().at_ns <= now_ns_) {
      const int lost = losses_.front().device;
      losses_.pop_front();
      LoseDevice(lost);
    }
  }
  CheckComplete();
  return std::move(schedule_);
}

void StepRun::TakeDecisions() {
  for (const int part : feed_.TakeWithdrawn()) Withdraw(part);
  for (const PartFeed::Sent& sent : feed_.TakeSent()) AddPart(sent);
  if (!feed_.directs_host()) return;
  for (const PartFeed::HostTask& task : feed_.TakeHostTasks()) {
    JobRun& job = *jobs_.at(task.job);
    if (task.kind == HostOpKind::kGather) {
      job.PublishRows(task.round);
      for (DeviceRun& device : devices_) device.changed = true;
      continue;
    }
    job.host().Start(task.kind == HostOpKind::kReduce ? WorkKind::kReduce
                                                      : WorkKind::kOptimizer,
                     task.round, task.layer);
    StartHostWork(job);
  }
}

int64_t StepRun::NextEventNs() {
  compute_end_ns_ = TransferRates::kNever;
  for (const DeviceRun& device : devices_) {
    compute_end_ns_ = std::min(compute_end_ns_, device.op_end_ns);
  }
  const int64_t next_ns = std::min(transfers_.NextEndNs(), compute_end_ns_);
  // A loss after the end is none.
  if (next_ns == TransferRates::kNever || losses_.empty()) return next_ns;
  return std::min(next_ns, std::max(now_ns_, losses_.front().at_ns));
}

bool StepRun::MayGiveUp() const {
  const double least_ns = compute_left_ns_ / total_speed_;
  return least_ns > 0 &&
         static_cast<double>(now_ns_) + least_ns > give_up_after_ns_;
}

void StepRun::CheckComplete() const {
  for (const auto& job : jobs_) {
    for (const auto& run : job->runs()) {
      ROUNDHOUSE_CHECK(run->finished())
          << "deadlock at " << now_ns_ << " ns, job " << job->index()
          << " slot " << run->part().slot;
    }
  }
}

// --- a part comes to its device ---

void StepRun::AddPart(const PartFeed::Sent& sent) {
  JobRun& job = *job_of_.at(sent.part);
  PartRun& run = job.run(sent.part);
  device_of_[sent.part] = sent.device;
  DeviceRun& device = devices_[sent.device];
  DeviceLane& lane = device.lanes[job.index()];
  const Part& part = run.part();
  if (sent.backfill) backfill_rank_[job.index()] = kBackfillRank;
  any_backfill_ |= sent.backfill;
  device.changed = true;
  lane.parts.push_back({&run, sent.turn, sent.backfill, sent.order,
                        lane.laps_sent, device.laps_sent});
  ++sequence_;
  lane.laps_sent += run.lap_count();
  device.laps_sent += run.lap_count();
  lane.AdmitLaps();
  for (int layer = part.layers.first; layer <= part.layers.last; ++layer) {
    HoldWeights(device, job, run, layer);
  }
  ReleaseWeights(sent.device);
  if (!part.backward()) return;
  int sums = 0;
  for (int layer = part.layers.first; layer <= part.layers.last; ++layer) {
    if (!job.SumsDown(sent.part, layer)) ++sums;
  }
  if (sums == 0) return run.AllowSums();
  lane.sums.push_back({&run, sums});
  lane.AllowSums();
}

Transfer StepRun::Bulk(WorkKind kind, const JobRun& job, PartRun& run,
                       int layer, int64_t bytes) const {
  Transfer transfer;
  transfer.kind = kind;
  transfer.boundary.layer = layer;
  transfer.boundary.direction = run.part().direction();
  transfer.bytes = bytes;
  transfer.run = &run;
  transfer.rank = kBulkRank + backfill_rank_[job.index()];
  job.Stamp(job.RoundOf(run.part()), transfer);
  return transfer;
}

void StepRun::HoldWeights(DeviceRun& device, const JobRun& job, PartRun& run,
                          int layer) const {
  Transfer transfer =
      Bulk(WorkKind::kWeights, job, run, layer, job.costs().WeightBytes(layer));
  // What was waited for goes before frozen bytes that are needed later.
  transfer.rank += sequence_ * kLayersInRank + layer;
  const int64_t frozen = FrozenBytes(job.costs(), layer);
  if (!job.host().WeightsMayGoUp(transfer.round, layer) && frozen > 0) {
    transfer.bytes -= frozen;
    Transfer first = transfer;
    first.bytes = frozen;
    first.last = false;
    device.held_weights.push_back(first);
  }
  device.held_weights.push_back(transfer);
}

// What may go up, whatever of other layers still waits before it.
void StepRun::ReleaseWeights(int d) {
  auto& held = devices_[d].held_weights;
  absl::InlinedVector<std::pair<int, int>, 64> waiting;  // job, layer
  const auto waits = [&](const Transfer& transfer) {
    const std::pair key{transfer.job, transfer.boundary.layer};
    if (std::find(waiting.begin(), waiting.end(), key) != waiting.end()) {
      return true;
    }
    if (!transfer.last || jobs_[transfer.job]->host().WeightsMayGoUp(
                              transfer.round, transfer.boundary.layer)) {
      return false;
    }
    waiting.push_back(key);
    return true;
  };
  std::erase_if(held, [&](const Transfer& transfer) {
    if (waits(transfer)) return false;
    transfers_.Push(Transfers::Up(d), transfer);
    return true;
  });
}

// In order: devices free their sums in order.
void StepRun::ReleaseGradients(int d) {
  for (DeviceLane& lane : devices_[d].lanes) {
    auto& held = lane.held_gradients;
    while (!held.empty() &&
           jobs_[held.front().job]->host().ContributionsMayGoDown(
               held.front().round, held.front().boundary.layer)) {
      transfers_.Push(Transfers::Down(d), held.front());
      held.pop_front();
    }
  }
}

// --- compute ---

void StepRun::StartCompute(int d) {
  DeviceRun& device = devices_[d];
  if (device.op.has_value()) return;
  PartRun* const run = NextToCompute(d);
  if (run == nullptr) return;
  if (!options_.ideas.per_layer && !run->all_weights()) return;
  const bool backfill = backfill_rank_[run->place().job] > 0;
  device.op = backfill ? run->NextLayer() : run->Next();
  if (!device.op.has_value()) return;
  (backfill ? device.guest : device.current) = run;
  const JobRun& job = *jobs_[run->place().job];
  device.op_end_ns = now_ns_ + OpNs(d, *run, *device.op);
  for (int layer = device.op->begin; layer < device.op->end; ++layer) {
    compute_left_ns_ -=
        static_cast<double>(LayerNs(job.costs(), device.op->kind, layer));
  }
  if (device.op_end_ns > now_ns_) {
    schedule_.end_ns = std::max(schedule_.end_ns, device.op_end_ns);
  }
  if (job.index() == 0) {
    int64_t& computed_ns = schedule_.computed_ns[job.RoundOf(run->part())];
    computed_ns = std::max(computed_ns, device.op_end_ns);
  }
  if (options_.intervals != Intervals::kNone) RecordCompute(d, job, *run);
}

void StepRun::RecordCompute(int d, const JobRun& job, const PartRun& run) {
  const DeviceRun& device = devices_[d];
  const HostWork::Rounds& rounds = job.rounds();
  Interval interval;
  interval.resource = {ResourceType::kCompute, d};
  interval.kind = device.op->kind;
  interval.job = job.index();
  interval.attempt = run.place().attempt;
  interval.step = job.RoundOf(run.part()) / rounds.per_step;
  interval.direction = run.part().direction();
  interval.layer_begin = device.op->begin;
  interval.layer_end = device.op->end;
  interval.micro_batch = run.micro_batch(run.lap()) -
                         interval.step * rounds.per_step * rounds.micro_batches;
  interval.start_ns = now_ns_;
  interval.end_ns = device.op_end_ns;
  schedule_.intervals.push_back(interval);
}

int64_t StepRun::OpNs(int d, const PartRun& run, const PartRun::Op& op) const {
  const ModelCosts& costs = job_of_[run.place().number]->costs();
  int64_t ns = 0;
  for (int layer = op.begin; layer < op.end; ++layer) {
    ns += machine_.devices[d].RunNs(LayerNs(costs, op.kind, layer));
  }
  return ns;
}

void StepRun::EndCompute(int d) {
  DeviceRun& device = devices_[d];
  PartRun& run = *(device.guest != nullptr ? device.guest : device.current);
  const int number = run.place().number;
  JobRun& job = *job_of_[number];
  DeviceLane& lane = device.lanes[job.index()];
  const PartRun::Results results = run.Finish(*device.op);
  device.op.reset();
  device.op_end_ns = TransferRates::kNever;
  device.changed = true;
  for (const int layer : results.gradients) {
    if (job.SumsDown(number, layer)) continue;
    const int64_t bytes =
        run.part().contributions *
        ContributionBytes(job.costs(), layer, options_.contributions);
    lane.held_gradients.push_back(
        Bulk(WorkKind::kGradients, job, run, layer, bytes));
    ++down_left_[number];
  }
  if (!results.gradients.empty()) ReleaseGradients(d);
  for (const Boundary& boundary : results.down) {
    if (job.InHost(boundary)) continue;  // an earlier attempt's
    Transfer transfer{WorkKind::kActivations, boundary,
                      job.costs().BoundaryBytes(), &run};
    transfer.rank = backfill_rank_[job.index()];
    // Nobody but the embedding waits for it: its layer's sums go first.
    if (boundary.layer == 0 && !results.gradients.empty()) {
      transfer.rank += kBulkRank;
    }
    job.Stamp(job.RoundOf(run.part()), transfer);
    transfers_.Push(Transfers::Down(d), transfer);
    ++down_left_[number];
  }
  if (results.lap_done) {
    ++lane.laps_done;
    lane.AdmitLaps();
  }
  device.guest = nullptr;
  if (!run.finished()) return;
  lane.parts.pop_front();
  NoteComputed(job, run.part());
  if (device.current == &run) device.current = nullptr;
  feed_.Computed(number);
  if (down_left_[number] == 0) PartIsDone(number);
}

void StepRun::NoteComputed(const JobRun& job, const Part& part) {
  const HostWork::Rounds& rounds = job.rounds();
  if (rounds.steps == 1 || job.RoundOf(part) >= rounds.per_step) return;
  if (--first_step_left_ > 0) return;
  give_up_after_ns_ = static_cast<double>(now_ns_) + options_.give_up_ns;
}

void StepRun::PartIsDone(int number) {
  device_of_[number] = -1;
  --parts_left_[job_of_[number]->index()];
  feed_.Done(number);
}

}  // namespace roundhouse
