#include "scheduler/simulate/step_simulator.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

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

class StepRun {
 public:
  StepRun(const ModelCosts& costs, const Machine& machine,
          const std::vector<Part>& parts, int micro_batches,
          const StepOptions& options, PartFeed& feed)
      : costs_(costs),
        machine_(machine),
        parts_(parts),
        micro_batches_(micro_batches),
        options_(options),
        feed_(feed),
        transfers_(machine, options.chunk_bytes, options.split_at_rates,
                   schedule_),
        devices_(machine.devices.size()),
        in_host_(2 * (costs.layers + 2) * static_cast<size_t>(micro_batches)),
        contributors_left_(costs.layers + 1),
        contributions_(costs.layers + 1) {
    schedule_.device_count = machine.device_count();
    CountContributions();
    MakeRuns();
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
  void CountContributions() {
    for (const Part& part : parts_) {
      if (!part.backward()) continue;
      for (int l = part.layers.first; l <= part.layers.last; ++l) {
        ++contributors_left_[l];
        contributions_[l] += part.contributions;
      }
    }
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
    // Gathered rows are there before the step starts.
    for (int m = 0; m < micro_batches_; ++m) {
      InHost({0, PassDirection::kForward, m}) = true;
    }
  }

  std::vector<bool>::reference InHost(const Boundary& boundary) {
    const int backward = boundary.direction == PassDirection::kBackward ? 1 : 0;
    const auto row = static_cast<size_t>(2 * boundary.layer + backward);
    return in_host_[row * micro_batches_ + boundary.micro_batch];
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
      PushBulk(Transfers::Up(d), WorkKind::kWeights, run, layer,
               costs_.WeightBytes(layer));
    }
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

  void PushBulk(int channel, WorkKind kind, PartRun& run, int layer,
                int64_t bytes) {
    Transfer transfer;
    transfer.kind = kind;
    transfer.boundary.layer = layer;
    transfer.boundary.direction = DirectionOf(run.part());
    transfer.bytes = bytes;
    transfer.run = &run;
    transfers_.Push(channel, transfer);
  }

  // --- compute ---

  void StartCompute(int d) {
    Device& device = devices_[d];
    if (device.op.has_value() || device.parts.empty()) return;
    const PartRun& run = *device.parts.front();
    device.op = run.Next();
    if (!device.op.has_value()) return;
    Interval interval;
    interval.resource = {ResourceType::kCompute, d};
    interval.kind = device.op->kind;
    interval.direction = DirectionOf(run.part());
    interval.layer_begin = device.op->begin;
    interval.layer_end = device.op->end;
    interval.micro_batch = run.micro_batch(run.turn());
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
      transfers_.Push(Transfers::Down(d), {WorkKind::kActivations, boundary,
                                           costs_.BoundaryBytes(), &run});
    }
    for (const int layer : results.gradients) {
      const int64_t bytes =
          run.part().contributions *
          ContributionBytes(costs_, layer, options_.contributions);
      PushBulk(Transfers::Down(d), WorkKind::kGradients, run, layer, bytes);
    }
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
      transfers_.Push(Transfers::Up(d),
                      {WorkKind::kActivations, it->boundary,
                       costs_.BoundaryBytes(), it->run, it->turn, it->order});
      it = device.uploads.erase(it);
    }
  }

  void EndTransfer(const Transfers::Ended& ended) {
    const Transfer& transfer = ended.transfer;
    const bool up = ended.channel % 2 == 0;
    if (transfer.run != nullptr) devices_[ended.channel / 2].changed = true;
    if (transfer.kind == WorkKind::kWeights) {
      transfer.run->WeightsArrived();
    } else if (transfer.kind == WorkKind::kActivations && up) {
      transfer.run->InputArrived(transfer.turn, transfer.boundary.direction);
    } else if (transfer.kind == WorkKind::kActivations) {
      InHost(transfer.boundary) = true;
      for (Device& device : devices_) device.changed = true;
    } else if (transfer.kind == WorkKind::kGradients) {
      SumsAreDown(devices_[ended.channel / 2], *transfer.run,
                  transfer.boundary.layer);
    }
  }

  void SumsAreDown(Device& device, const PartRun& run, int layer) {
    // Parts send their sums in order, so it is the first one with any left.
    Sums& sums = device.sums.front();
    ROUNDHOUSE_CHECK(sums.run == &run);
    if (--sums.layers_left == 0) {
      device.sums.pop_front();
      AllowSums(device);
    }
    if (--contributors_left_[layer] > 0) return;
    Transfer reduce;
    reduce.kind = WorkKind::kReduce;
    reduce.boundary.layer = layer;
    reduce.boundary.direction = PassDirection::kBackward;
    reduce.bytes = ReduceBytes(costs_, layer, options_.contributions,
                               contributions_[layer]);
    transfers_.Push(transfers_.reduce(), reduce);
  }

  const ModelCosts& costs_;
  const Machine& machine_;
  const std::vector<Part>& parts_;
  const int micro_batches_;
  const StepOptions& options_;
  PartFeed& feed_;
  Schedule schedule_;
  Transfers transfers_;
  std::vector<Device> devices_;
  std::vector<bool> in_host_;           // by InHost
  std::vector<int> contributors_left_;  // parts, per layer
  std::vector<int64_t> contributions_;  // per layer
  std::vector<int> saved_;
  std::vector<std::unique_ptr<PartRun>> runs_;  // per part
  int64_t now_ns_ = 0;
};

}  // namespace

int64_t ContributionBytes(const ModelCosts& costs, int layer,
                          Contributions contributions) {
  const int64_t bytes = costs.GradientBytes(layer);
  return contributions == Contributions::kFp32 ? 2 * bytes : bytes;
}

int64_t ReduceBytes(const ModelCosts& costs, int layer,
                    Contributions contributions, int64_t count) {
  return count * ContributionBytes(costs, layer, contributions) +
         2 * costs.GradientBytes(layer);
}

bool TrainsEmbedding(const ModelCosts& costs) {
  return costs.head_gradient_bytes > 0;
}

Schedule SimulateParts(const ModelCosts& costs, const Machine& machine,
                       const std::vector<Part>& parts, int micro_batches,
                       const StepOptions& options, PartFeed& feed) {
  return StepRun(costs, machine, parts, micro_batches, options, feed).Run();
}

absl::StatusOr<Schedule> SimulateStep(const ModelCosts& costs,
                                      const Machine& machine,
                                      const StepPlan& plan, int micro_batches,
                                      const StepOptions& options) {
  RETURN_IF_ERROR(CheckStepPlan(plan, costs.layers + 1, micro_batches,
                                machine.device_count()));
  const std::vector<Part> parts = PartsOf(plan, micro_batches);
  EarliestFinishFeed feed(parts, costs, machine, 1 + plan.look_ahead);
  return SimulateParts(costs, machine, parts, micro_batches, options, feed);
}

}  // namespace roundhouse
