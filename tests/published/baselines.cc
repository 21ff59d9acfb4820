#include "tests/published/baselines.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/reduction.h"
#include "base/status.h"
#include "tests/published/list_schedule.h"

namespace roundhouse {
namespace {

using Op = ListSchedule::Op;
using Piece = ListSchedule::Piece;

// Where an operation of a stage stands in a device's list.
struct Turn {
  bool forward = true;
  int local_stage = 0;
  int micro_batch = 0;
};

absl::Status CheckCounts(int device_count, int micro_batch_count) {
  if (device_count < 1 || device_count > kMaxSimulatedDevices) {
    return absl::InvalidArgumentError(absl::StrCat(
        device_count, " devices: expected 1 to ", kMaxSimulatedDevices));
  }
  if (micro_batch_count < 1 || micro_batch_count > kMaxSimulatedMicroBatches) {
    return absl::InvalidArgumentError(
        absl::StrCat(micro_batch_count, " micro-batches: expected 1 to ",
                     kMaxSimulatedMicroBatches));
  }
  return absl::OkStatus();
}

absl::Status CheckStages(const Stages& stages, int layer_count,
                         int device_count, bool one_each) {
  int next = 0;
  for (const LayerRange& stage : stages) {
    if (stage.layer_count() < 0 ||
        (stage.layer_count() > 0 && stage.first != next)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a stage [", stage.first, ",", stage.last,
                       "] after layer ", next - 1));
    }
    next += stage.layer_count();
  }
  if (next != layer_count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "stages of ", next, " layers for a model of ", layer_count));
  }
  const int count = static_cast<int>(stages.size());
  if (count == 0 || count % device_count != 0 ||
      (one_each && count != device_count)) {
    return absl::InvalidArgumentError(
        absl::StrCat(count, " stages on ", device_count, " devices"));
  }
  return absl::OkStatus();
}

// The stage without the head: [first, end).
struct Blocks {
  int first = 0;
  int end = 0;
  bool head = false;
  int count() const { return end - first; }
};

Blocks BlocksOf(const LayerRange& stage, const ModelCosts& costs) {
  const bool head = stage.Contains(costs.head());
  return {stage.first, stage.last + (head ? 0 : 1), head};
}

Piece HeadPiece(WorkKind kind, const ModelCosts& costs) {
  const int64_t length_ns = kind == WorkKind::kHeadForward
                                ? costs.head_forward_ns
                                : costs.head_backward_ns;
  return {kind, costs.head(), costs.head() + 1, length_ns};
}

std::vector<Piece> ForwardPieces(const Blocks& blocks,
                                 const ModelCosts& costs) {
  std::vector<Piece> pieces = {{WorkKind::kForward, blocks.first, blocks.end,
                                blocks.count() * costs.forward_ns}};
  if (blocks.head) {
    pieces.push_back(HeadPiece(WorkKind::kHeadForward, costs));
  }
  return pieces;
}

Piece RecomputePiece(const Blocks& blocks, const ModelCosts& costs) {
  return {WorkKind::kRecompute, blocks.first, blocks.end,
          blocks.count() * costs.forward_ns};
}

Piece BackwardPiece(const Blocks& blocks, const ModelCosts& costs) {
  return {WorkKind::kBackward, blocks.first, blocks.end,
          blocks.count() * costs.backward_ns};
}

// --- baselines whose stages have a place ---

class PlacedBaseline {
 public:
  PlacedBaseline(const ModelCosts& costs, const Stages& stages,
                 int device_count, int micro_batch_count)
      : costs_(costs),
        stages_(stages),
        devices_(device_count),
        micro_batches_(micro_batch_count),
        list_(device_count, 2 * StageCount() * micro_batch_count,
              costs.hop_ns) {}

  Schedule Run(Baseline baseline) {
    for (int device = 0; device < devices_; ++device) {
      for (const Turn& turn : Turns(baseline, device)) Append(device, turn);
    }
    list_.Run();
    return list_.schedule();
  }

 private:
  int StageCount() const { return static_cast<int>(stages_.size()); }
  int LocalStages() const { return StageCount() / devices_; }

  std::vector<Turn> Turns(Baseline baseline, int rank) const {
    switch (baseline) {
      case Baseline::kGpipe:
        return BreadthFirst(/*backward_descending=*/false);
      case Baseline::kLoopedBfs:
        return BreadthFirst(/*backward_descending=*/true);
      case Baseline::k1f1b:
        return OneForwardOneBackward(StageTurns(1),
                                     std::min(micro_batches_, devices_ - rank),
                                     /*backward_first=*/true);
      case Baseline::kInterleaved1f1b:
        return Interleaved(rank);
      case Baseline::kRoundpipe:
        break;
    }
    ROUNDHOUSE_CHECK(false) << "roundpipe has no places";
    return {};
  }

  std::vector<Turn> BreadthFirst(bool backward_descending) const {
    std::vector<Turn> turns;
    for (int stage = 0; stage < LocalStages(); ++stage) {
      for (int m = 0; m < micro_batches_; ++m)
        turns.push_back({true, stage, m});
    }
    for (int stage = LocalStages() - 1; stage >= 0; --stage) {
      for (int i = 0; i < micro_batches_; ++i) {
        const int m = backward_descending ? micro_batches_ - 1 - i : i;
        turns.push_back({false, stage, m});
      }
    }
    return turns;
  }

  // Local stages in the order of their forward turns (backward: mirrored): each
  // of `rounds` runs every local stage with its share of the micro-batches.
  std::vector<int> StageTurns(int rounds) const {
    std::vector<int> stages;
    for (int round = 0; round < rounds; ++round) {
      const int share =
          micro_batches_ / rounds + (round < micro_batches_ % rounds ? 1 : 0);
      for (int stage = 0; stage < LocalStages(); ++stage) {
        stages.insert(stages.end(), share, stage);
      }
    }
    return stages;
  }

  // `warm_up` forward turns, then one of each in turn, then the backward ones
  // that are left.
  std::vector<Turn> OneForwardOneBackward(const std::vector<int>& stages,
                                          int warm_up,
                                          bool backward_first) const {
    std::vector<int> forward_seen(LocalStages()), backward_seen(LocalStages());
    std::vector<Turn> turns;
    auto forward = [&](int i) {
      turns.push_back({true, stages[i], forward_seen[stages[i]]++});
    };
    auto backward = [&](int i) {
      const int stage = LocalStages() - 1 - stages[i];
      turns.push_back({false, stage, backward_seen[stage]++});
    };
    const int count = static_cast<int>(stages.size());
    for (int i = 0; i < warm_up; ++i) forward(i);
    for (int i = warm_up; i < count; ++i) {
      if (backward_first) backward(i - warm_up);
      forward(i);
      if (!backward_first) backward(i - warm_up);
    }
    for (int i = count - warm_up; i < count; ++i) backward(i);
    return turns;
  }

  std::vector<Turn> Interleaved(int rank) const {
    const int rounds = std::max(1, micro_batches_ / devices_);
    const std::vector<int> stages = StageTurns(rounds);
    const int most_per_stage = (micro_batches_ + rounds - 1) / rounds;
    const int warm_up = std::min(
        (LocalStages() - 1) * most_per_stage + 2 * (devices_ - 1 - rank),
        static_cast<int>(stages.size()));
    return OneForwardOneBackward(stages, warm_up, /*backward_first=*/false);
  }

  int Id(bool forward, int stage, int micro_batch) const {
    return ((forward ? 0 : 1) * StageCount() + stage) * micro_batches_ +
           micro_batch;
  }

  void Append(int device, const Turn& turn) {
    const int stage = turn.local_stage * devices_ + device;
    const Blocks blocks = BlocksOf(stages_[stage], costs_);
    Op op;
    op.micro_batch = turn.micro_batch;
    if (turn.forward) {
      op.main = ForwardPieces(blocks, costs_);
      if (stage > 0) op.after = {Id(true, stage - 1, turn.micro_batch)};
    } else {
      op.direction = PassDirection::kBackward;
      op.main = {RecomputePiece(blocks, costs_)};
      if (blocks.head) {
        op.main.push_back(HeadPiece(WorkKind::kHeadBackward, costs_));
      }
      op.main.push_back(BackwardPiece(blocks, costs_));
      op.after = {Id(true, stage, turn.micro_batch)};
      if (stage + 1 < StageCount()) {
        op.after.push_back(Id(false, stage + 1, turn.micro_batch));
      }
    }
    list_.Append(device, Id(turn.forward, stage, turn.micro_batch),
                 std::move(op));
  }

  const ModelCosts& costs_;
  const Stages& stages_;
  const int devices_;
  const int micro_batches_;
  ListSchedule list_;
};

// --- roundpipe ---

// The slots of a round: forward stages, fused, backward stages.
class RoundpipeRounds {
 public:
  RoundpipeRounds(const ModelCosts& costs, const Plan& plan, int device_count,
                  int micro_batch_count)
      : costs_(costs),
        plan_(plan),
        devices_(device_count),
        micro_batches_(micro_batch_count),
        list_(device_count, SlotCount() * micro_batch_count, costs.hop_ns) {}

  Schedule Run() {
    for (int begin = 0; begin < micro_batches_; begin += devices_) {
      const int end = std::min(begin + devices_, micro_batches_);
      const int first_device = list_.FirstFreeDevice();
      for (int slot = 0; slot < SlotCount(); ++slot) {
        const int device = (first_device + slot) % devices_;
        for (int m = begin; m < end; ++m) Append(device, slot, m);
      }
      list_.Run();
    }
    return list_.schedule();
  }

 private:
  int ForwardCount() const { return static_cast<int>(plan_.forward.size()); }
  int SlotCount() const {
    return ForwardCount() + static_cast<int>(plan_.backward.size());
  }

  void Append(int device, int slot, int micro_batch) {
    Op op = slot < ForwardCount() ? ForwardOp(plan_.forward[slot])
            : slot == ForwardCount()
                ? FusedOp(plan_.backward[0])
                : BackwardOp(plan_.backward[slot - ForwardCount()]);
    op.micro_batch = micro_batch;
    if (slot > 0) op.after = {(slot - 1) * micro_batches_ + micro_batch};
    list_.Append(device, slot * micro_batches_ + micro_batch, std::move(op));
  }

  Op ForwardOp(const LayerRange& stage) const {
    Op op;
    op.main = ForwardPieces(BlocksOf(stage, costs_), costs_);
    return op;
  }

  Op FusedOp(const LayerRange& stage) const {
    Op op;
    op.direction = PassDirection::kBackward;
    if (stage.layer_count() == 1) {
      op.prelude = {HeadPiece(WorkKind::kHeadForward, costs_)};
      op.main = {HeadPiece(WorkKind::kHeadBackward, costs_)};
      return op;
    }
    int64_t length_ns = 0;
    for (int layer = stage.first; layer <= stage.last; ++layer) {
      length_ns += costs_.ForwardNs(layer) + costs_.BackwardNs(layer);
    }
    op.main = {{WorkKind::kFused, stage.first, stage.last + 1, length_ns}};
    return op;
  }

  Op BackwardOp(const LayerRange& stage) const {
    const Blocks blocks = BlocksOf(stage, costs_);
    Op op;
    op.direction = PassDirection::kBackward;
    op.prelude = {RecomputePiece(blocks, costs_)};
    op.main = {BackwardPiece(blocks, costs_)};
    return op;
  }

  const ModelCosts& costs_;
  const Plan& plan_;
  const int devices_;
  const int micro_batches_;
  ListSchedule list_;
};

}  // namespace

absl::string_view BaselineName(Baseline baseline) {
  switch (baseline) {
    case Baseline::kGpipe:
      return "gpipe";
    case Baseline::k1f1b:
      return "1f1b";
    case Baseline::kInterleaved1f1b:
      return "interleaved-1f1b";
    case Baseline::kLoopedBfs:
      return "looped-bfs";
    case Baseline::kRoundpipe:
      return "roundpipe";
  }
  return "";
}

absl::StatusOr<Schedule> SimulatePlacedBaseline(Baseline baseline,
                                                const ModelCosts& costs,
                                                const Stages& stages,
                                                int device_count,
                                                int micro_batch_count) {
  RETURN_IF_ERROR(CheckCounts(device_count, micro_batch_count));
  const bool one_each =
      baseline == Baseline::kGpipe || baseline == Baseline::k1f1b;
  RETURN_IF_ERROR(
      CheckStages(stages, costs.layers + 1, device_count, one_each));
  PlacedBaseline run(costs, stages, device_count, micro_batch_count);
  return run.Run(baseline);
}

absl::StatusOr<Schedule> SimulateRoundpipe(const ModelCosts& costs,
                                           const Plan& plan, int device_count,
                                           int micro_batch_count) {
  RETURN_IF_ERROR(CheckCounts(device_count, micro_batch_count));
  RETURN_IF_ERROR(CheckPlan(plan, costs.layers + 1));
  if (!plan.fused) {
    return absl::InvalidArgumentError("the plan has no fused stage");
  }
  RoundpipeRounds run(costs, plan, device_count, micro_batch_count);
  return run.Run();
}

absl::StatusOr<Schedule> SimulateAllWide(const ModelCosts& costs,
                                         int device_count,
                                         int micro_batch_count) {
  RETURN_IF_ERROR(CheckCounts(device_count, micro_batch_count));
  ListSchedule list(device_count, micro_batch_count, costs.hop_ns);
  const Blocks all{0, costs.layers, true};
  const auto shares = GroupRanges(micro_batch_count, device_count);
  for (size_t device = 0; device < shares.size(); ++device) {
    for (int64_t m = shares[device].begin; m < shares[device].end; ++m) {
      Op op;
      op.micro_batch = static_cast<int>(m);
      op.main = ForwardPieces(all, costs);
      op.main.push_back(HeadPiece(WorkKind::kHeadBackward, costs));
      op.main.push_back(RecomputePiece(all, costs));
      op.main.push_back(BackwardPiece(all, costs));
      list.Append(static_cast<int>(device), static_cast<int>(m), std::move(op));
    }
  }
  list.Run();
  return list.schedule();
}

}  // namespace roundhouse
