#include "scheduler/simulate/step_simulator.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "scheduler/simulate/part_run.h"
#include "scheduler/simulate/transfers.h"

namespace roundhouse {
namespace {

// Turns beyond those computed whose inputs may be on the device: the one that
// runs, and the next.
constexpr int kTurnWindow = 2;
// Sets of gradient sums on a device: added to, and going down.
constexpr size_t kSumSets = 2;

// An activation that a part needs.
struct Upload {
  PartRun* run = nullptr;
  int turn = 0;       // of the part
  int64_t order = 0;  // of the turn, over all parts of the device
  Boundary boundary;
};

// A backward part whose gradients are not all down.
struct Sums {
  PartRun* run = nullptr;
  int layers_left = 0;
};

struct Device {
  std::deque<PartRun*> parts;  // sent and not computed
  std::optional<PartRun::Op> op;
  int64_t op_end_ns = TransferRates::kNever;
  std::deque<Upload> uploads;  // not yet queued, in order
  // Bulk that waits for host work, in order.
  std::deque<Transfer> held_weights;
  std::deque<Transfer> held_gradients;
  int64_t turns_sent = 0;
  int64_t turns_done = 0;
  std::deque<Sums> sums;
  bool changed = true;  // since it was last asked for more work
};

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

PassDirection DirectionOf(const Part& part) {
  return part.backward() ? PassDirection::kBackward : PassDirection::kForward;
}

// The frozen bytes of a layer's weights: no update writes them.
int64_t FrozenBytes(const ModelCosts& costs, int layer) {
  return std::max<int64_t>(
      0, costs.WeightBytes(layer) - costs.GradientBytes(layer));
}

Transfers::Options TransferOptions(const HostWork::Rounds& rounds,
                                   const StepOptions& options) {
  Transfers::Options transfers;
  transfers.chunk_bytes = options.chunk_bytes;
  transfers.split_at_rates = options.split_at_rates;
  transfers.priorities = options.ideas.priorities;
  transfers.update_rate = kMostUpdateRate * kUpdateBytesPerParameter;
  transfers.rounds = rounds.per_step;
  transfers.micro_batches = rounds.per_step * rounds.micro_batches;
  return transfers;
}

class StepRun {
 public:
  // `parts`: of all rounds.
  StepRun(const ModelCosts& costs, const Machine& machine,
          const std::vector<Part>& parts, const HostWork::Rounds& rounds,
          const StepOptions& options, PartFeed& feed)
      : costs_(costs),
        machine_(machine),
        parts_(parts),
        rounds_(rounds),
        options_(options),
        feed_(feed),
        host_(costs, FirstRound(parts, rounds), rounds, options.contributions),
        transfers_(machine, TransferOptions(rounds, options), schedule_),
        devices_(machine.devices.size()),
        in_host_(2 * (costs.layers + 2) * MicroBatches()) {
    schedule_.device_count = machine.device_count();
    MakeRuns();
    PublishRows();
  }

  Schedule Run() {
    while (true) {
      for (const auto& [part, device] : feed_.TakeSent()) {
        AddPart(*runs_.at(part), device);
      }
      for (int d = 0; d < machine_.device_count(); ++d) {
        if (!std::exchange(devices_[d].changed, false)) continue;
        StartCompute(d);
        QueueUploads(d);
      }
      transfers_.Start();
      const int64_t next_ns = NextEventNs();
      if (next_ns == TransferRates::kNever) break;
      now_ns_ = next_ns;
      transfers_.AdvanceTo(now_ns_);
      for (int d = 0; d < machine_.device_count(); ++d) EndCompute(d);
      for (const auto& ended : transfers_.TakeEnded()) EndTransfer(ended);
    }
    CheckComplete();
    return std::move(schedule_);
  }

 private:
  static std::vector<Part> FirstRound(const std::vector<Part>& parts,
                                      const HostWork::Rounds& rounds) {
    const auto count = parts.size() / static_cast<size_t>(rounds.count());
    return {parts.begin(), parts.begin() + static_cast<ptrdiff_t>(count)};
  }

  size_t MicroBatches() const {
    return static_cast<size_t>(rounds_.count()) * rounds_.micro_batches;
  }

  int RoundOf(const Part& part) const {
    return static_cast<int>(part.micro_batches.begin / rounds_.micro_batches);
  }

  void MakeRuns() {
    for (const Part& part : parts_) {
      if (part.pass == SlotPass::kBackward) saved_.push_back(part.layers.first);
    }
    std::sort(saved_.begin(), saved_.end());
    saved_.erase(std::unique(saved_.begin(), saved_.end()), saved_.end());
    for (const Part& part : parts_) {
      runs_.push_back(std::make_unique<PartRun>(part, costs_, saved_));
    }
  }

  // Gathers rows for the rounds that may begin.
  void PublishRows() {
    while (rounds_begun_ < rounds_.count() &&
           host_.RowsAreThere(rounds_begun_)) {
      const int first = rounds_begun_++ * rounds_.micro_batches;
      for (int m = first; m < first + rounds_.micro_batches; ++m) {
        InHost({0, PassDirection::kForward, m}) = true;
      }
      for (Device& device : devices_) device.changed = true;
    }
  }

  std::vector<bool>::reference InHost(const Boundary& boundary) {
    const int backward = boundary.direction == PassDirection::kBackward ? 1 : 0;
    const auto row = static_cast<size_t>(2 * boundary.layer + backward);
    return in_host_[row * MicroBatches() + boundary.micro_batch];
  }

  int64_t NextEventNs() const {
    int64_t next_ns = transfers_.NextEndNs();
    for (const Device& device : devices_) {
      next_ns = std::min(next_ns, device.op_end_ns);
    }
    return next_ns;
  }

  void CheckComplete() const {
    for (const auto& run : runs_) {
      ROUNDHOUSE_CHECK(run->finished())
          << "deadlock at " << now_ns_ << " ns, slot " << run->part().slot;
    }
  }

  // --- a part comes to its device ---

  void AddPart(PartRun& run, int d) {
    Device& device = devices_[d];
    const Part& part = run.part();
    device.changed = true;
    device.parts.push_back(&run);
    for (int turn = 0; turn < run.turn_count(); ++turn) {
      for (const Boundary& boundary : run.Inputs(turn)) {
        device.uploads.push_back({&run, turn, device.turns_sent, boundary});
      }
      ++device.turns_sent;
    }
    for (int layer = part.layers.first; layer <= part.layers.last; ++layer) {
      HoldWeights(device, run, layer);
    }
    ReleaseWeights(d);
    if (part.backward()) {
      device.sums.push_back({&run, part.layers.layer_count()});
      AllowSums(device);
    }
  }

  static void AllowSums(Device& device) {
    for (size_t i = 0; i < std::min(kSumSets, device.sums.size()); ++i) {
      device.sums[i].run->AllowSums();
    }
  }

  Transfer Bulk(WorkKind kind, PartRun& run, int layer, int64_t bytes) const {
    Transfer transfer;
    transfer.kind = kind;
    transfer.boundary.layer = layer;
    transfer.boundary.direction = DirectionOf(run.part());
    transfer.bytes = bytes;
    transfer.run = &run;
    transfer.rank = kBulkRank;
    transfer.round = RoundOf(run.part());
    return transfer;
  }

  void HoldWeights(Device& device, PartRun& run, int layer) const {
    Transfer transfer =
        Bulk(WorkKind::kWeights, run, layer, costs_.WeightBytes(layer));
    // What was waited for goes before frozen bytes that are needed later.
    transfer.rank +=
        (&run.part() - parts_.data()) * (costs_.layers + 1) + layer;
    const int64_t frozen = FrozenBytes(costs_, layer);
    if (!host_.WeightsMayGoUp(transfer.round, layer) && frozen > 0) {
      transfer.bytes -= frozen;
      Transfer first = transfer;
      first.bytes = frozen;
      first.last = false;
      device.held_weights.push_back(first);
    }
    device.held_weights.push_back(transfer);
  }

  // What may go up, whatever of other layers still waits before it.
  void ReleaseWeights(int d) {
    auto& held = devices_[d].held_weights;
    std::set<int> waiting;  // layers
    for (auto it = held.begin(); it != held.end();) {
      const int layer = it->boundary.layer;
      if (waiting.count(layer) != 0 ||
          (it->last && !host_.WeightsMayGoUp(it->round, layer))) {
        waiting.insert(layer);
        ++it;
        continue;
      }
      transfers_.Push(Transfers::Up(d), *it);
      it = held.erase(it);
    }
  }

  // In order: devices free their sums in order.
  void ReleaseGradients(int d) {
    auto& held = devices_[d].held_gradients;
    while (!held.empty() &&
           host_.ContributionsMayGoDown(held.front().round,
                                        held.front().boundary.layer)) {
      transfers_.Push(Transfers::Down(d), held.front());
      held.pop_front();
    }
  }

  // --- compute ---

  void StartCompute(int d) {
    Device& device = devices_[d];
    if (device.op.has_value() || device.parts.empty()) return;
    const PartRun& run = *device.parts.front();
    if (!options_.ideas.per_layer && !run.all_weights()) return;
    device.op = run.Next();
    if (!device.op.has_value()) return;
    Interval interval;
    interval.resource = {ResourceType::kCompute, d};
    interval.kind = device.op->kind;
    interval.step = RoundOf(run.part()) / rounds_.per_step;
    interval.direction = DirectionOf(run.part());
    interval.layer_begin = device.op->begin;
    interval.layer_end = device.op->end;
    interval.micro_batch =
        run.micro_batch(run.turn()) -
        interval.step * rounds_.per_step * rounds_.micro_batches;
    interval.start_ns = interval.end_ns = now_ns_;
    for (int layer = device.op->begin; layer < device.op->end; ++layer) {
      interval.end_ns +=
          machine_.devices[d].RunNs(LayerNs(costs_, interval.kind, layer));
    }
    device.op_end_ns = interval.end_ns;
    schedule_.intervals.push_back(interval);
  }

  void EndCompute(int d) {
    Device& device = devices_[d];
    if (device.op_end_ns > now_ns_) return;
    PartRun& run = *device.parts.front();
    const PartRun::Results results = run.Finish(*device.op);
    device.op.reset();
    device.op_end_ns = TransferRates::kNever;
    device.changed = true;
    for (const Boundary& boundary : results.down) {
      Transfer transfer{WorkKind::kActivations, boundary,
                        costs_.BoundaryBytes(), &run};
      transfer.round = RoundOf(run.part());
      transfers_.Push(Transfers::Down(d), transfer);
    }
    for (const int layer : results.gradients) {
      const int64_t bytes =
          run.part().contributions *
          ContributionBytes(costs_, layer, options_.contributions);
      device.held_gradients.push_back(
          Bulk(WorkKind::kGradients, run, layer, bytes));
    }
    ReleaseGradients(d);
    if (results.turn_done) ++device.turns_done;
    if (!run.finished()) return;
    device.parts.pop_front();
    feed_.Computed(static_cast<int>(&run.part() - parts_.data()));
  }

  // --- transfers ---

  void QueueUploads(int d) {
    Device& device = devices_[d];
    const int64_t window_end = device.turns_done + kTurnWindow;
    for (auto it = device.uploads.begin();
         it != device.uploads.end() && it->order < window_end;) {
      if (!InHost(it->boundary)) {
        ++it;
        continue;
      }
      Transfer transfer{WorkKind::kActivations,
                        it->boundary,
                        costs_.BoundaryBytes(),
                        it->run,
                        it->turn,
                        it->order};
      transfer.round = RoundOf(it->run->part());
      transfers_.Push(Transfers::Up(d), transfer);
      it = device.uploads.erase(it);
    }
  }

  void EndTransfer(const Transfers::Ended& ended) {
    const Transfer& transfer = ended.transfer;
    const bool up = ended.channel % 2 == 0;
    if (transfer.run != nullptr) devices_[ended.channel / 2].changed = true;
    if (transfer.kind == WorkKind::kWeights) {
      if (transfer.last) transfer.run->WeightsArrived(transfer.boundary.layer);
    } else if (transfer.kind == WorkKind::kActivations && up) {
      transfer.run->InputArrived(transfer.turn, transfer.boundary.direction);
    } else if (transfer.kind == WorkKind::kActivations) {
      ActivationIsDown(transfer);
    } else if (transfer.kind == WorkKind::kGradients) {
      SumsAreDown(devices_[ended.channel / 2], transfer);
    } else {
      HostWorkIsDone(transfer);
    }
  }

  void ActivationIsDown(const Transfer& transfer) {
    InHost(transfer.boundary) = true;
    for (Device& device : devices_) device.changed = true;
    if (transfer.boundary.layer > 0) return;
    host_.RowsGradientDown(transfer.round);
    PublishRows();
  }

  void SumsAreDown(Device& device, const Transfer& transfer) {
    // Parts send their sums in order, so it is the first one with any left.
    Sums& sums = device.sums.front();
    ROUNDHOUSE_CHECK(sums.run == transfer.run);
    if (--sums.layers_left == 0) {
      device.sums.pop_front();
      AllowSums(device);
    }
    host_.ContributionsDown(transfer.round, transfer.boundary.layer);
    StartHostWork();
  }

  void StartHostWork() {
    for (const HostWork::Job& job : host_.TakeJobs()) {
      Transfer transfer;
      transfer.kind = job.kind;
      transfer.boundary.layer = job.layer;
      transfer.boundary.direction = PassDirection::kBackward;
      transfer.bytes = job.bytes;
      transfer.round = job.round;
      transfer.rank = kBulkRank;
      // What the next step needs first.
      if (rounds_.updates != Updates::kNone && options_.ideas.priorities) {
        transfer.rank += int64_t{job.round} * (costs_.layers + 1) + job.layer;
      }
      const bool reduces = job.kind == WorkKind::kReduce;
      transfers_.Push(transfers_.Host(reduces ? HostThreads::kReduce
                                              : HostThreads::kOptimizer),
                      transfer);
    }
  }

  void HostWorkIsDone(const Transfer& transfer) {
    host_.Done({transfer.kind, transfer.round, transfer.boundary.layer});
    StartHostWork();
    PublishRows();
    for (int d = 0; d < machine_.device_count(); ++d) {
      ReleaseWeights(d);
      ReleaseGradients(d);
    }
  }

  const ModelCosts& costs_;
  const Machine& machine_;
  const std::vector<Part>& parts_;
  const HostWork::Rounds rounds_;
  const StepOptions& options_;
  PartFeed& feed_;
  HostWork host_;
  Schedule schedule_;
  Transfers transfers_;
  std::vector<Device> devices_;
  std::vector<bool> in_host_;  // by InHost
  int rounds_begun_ = 0;
  std::vector<int> saved_;
  std::vector<std::unique_ptr<PartRun>> runs_;  // per part
  int64_t now_ns_ = 0;
};

int MostSent(const StepPlan& plan, const StepOptions& options) {
  return options.ideas.prefetch ? 1 + plan.look_ahead : 1;
}

}  // namespace

Schedule SimulateParts(const ModelCosts& costs, const Machine& machine,
                       const std::vector<Part>& parts, int micro_batches,
                       const StepOptions& options, PartFeed& feed) {
  HostWork::Rounds one;
  one.micro_batches = micro_batches;
  return StepRun(costs, machine, parts, one, options, feed).Run();
}

absl::StatusOr<Schedule> SimulateStep(const ModelCosts& costs,
                                      const Machine& machine,
                                      const StepPlan& plan, int micro_batches,
                                      const StepOptions& options) {
  RETURN_IF_ERROR(CheckStepPlan(plan, costs.layers + 1, micro_batches,
                                machine.device_count()));
  const std::vector<Part> parts = PartsOf(plan, micro_batches);
  EarliestFinishFeed feed(parts, costs, machine, MostSent(plan, options));
  return SimulateParts(costs, machine, parts, micro_batches, options, feed);
}

std::vector<Part> RepeatedParts(const std::vector<Part>& parts, int rounds,
                                int micro_batches) {
  const int slots = parts.empty() ? 0 : parts.back().slot + 1;
  std::vector<Part> all;
  all.reserve(parts.size() * rounds);
  for (int round = 0; round < rounds; ++round) {
    for (Part part : parts) {
      part.slot += round * slots;
      part.micro_batches.begin += round * micro_batches;
      part.micro_batches.end += round * micro_batches;
      all.push_back(part);
    }
  }
  return all;
}

absl::StatusOr<Schedule> SimulateSteps(const ModelCosts& costs,
                                       const Machine& machine,
                                       const StepPlan& plan, int micro_batches,
                                       const StepsOptions& options) {
  RETURN_IF_ERROR(CheckStepPlan(plan, costs.layers + 1, micro_batches,
                                machine.device_count()));
  if (options.steps < 1 || options.rounds < 1 ||
      options.steps > kMaxSimulatedRounds / options.rounds) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.steps, " steps of ", options.rounds,
                     " rounds: expected at least one each and at most ",
                     kMaxSimulatedRounds, " rounds in all"));
  }
  const HostWork::Rounds rounds{options.steps, options.rounds, micro_batches,
                                options.updates, options.step.ideas.per_layer};
  const std::vector<Part> parts = RepeatedParts(PartsOf(plan, micro_batches),
                                                rounds.count(), micro_batches);
  EarliestFinishFeed feed(parts, costs, machine, MostSent(plan, options.step));
  return StepRun(costs, machine, parts, rounds, options.step, feed).Run();
}

}  // namespace roundhouse
