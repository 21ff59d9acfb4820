#include "scheduler/simulate/part_run.h"

#include <algorithm>

#include "base/log.h"
#include "scheduler/simulate/host_work.h"

namespace roundhouse {

SavedInputs SavedInputsOf(const std::vector<Part>& parts) {
  std::set<int> begins;
  SavedInputs saved;
  for (const Part& part : parts) {
    if (part.kind == SlotKind::kBackward) begins.insert(part.layers.first);
    if (!part.again) continue;
    for (int b = part.layers.first + 1; b <= part.layers.last + 1; ++b) {
      saved.again.insert(b);
    }
  }
  for (const int boundary : begins) {
    saved.begins.push_back(boundary);
    if (saved.again.count(boundary) == 0) saved.kept.push_back(boundary);
  }
  return saved;
}

PartRun::PartRun(const Part& part, const ModelCosts& costs,
                 const SavedInputs& saved, FusedSlots fused, const Place& place)
    : part_(part),
      costs_(costs),
      saved_(saved),
      fused_(fused),
      place_(place),
      input_(part.micro_batches.size()),
      gradient_(part.micro_batches.size()),
      weights_there_(part.layers.layer_count()),
      next_(part.layers.first) {}

absl::InlinedVector<Boundary, 2> PartRun::Inputs(int lap) const {
  const int first = part_.layers.first;
  const bool later = part_.again || part_.kind == SlotKind::kBackward;
  absl::InlinedVector<Boundary, 2> inputs = {
      {first,
       later && saved_.again.count(first) > 0 ? PassDirection::kAgain
                                              : PassDirection::kForward,
       micro_batch(lap)}};
  if (part_.kind == SlotKind::kBackward) {
    inputs.push_back(
        {part_.layers.last + 1, PassDirection::kBackward, micro_batch(lap)});
  }
  return inputs;
}

void PartRun::InputArrived(int lap, PassDirection direction) {
  (direction == PassDirection::kBackward ? gradient_ : input_).at(lap) = true;
}

void PartRun::WeightsArrived(int layer) {
  weights_there_.at(layer - part_.layers.first) = true;
  while (!all_weights() && weights_there_[weights_]) ++weights_;
}

std::optional<int> PartRun::AwaitedWeights() const {
  if (finished() || !input_[lap_] || all_weights() || Next().has_value()) {
    return std::nullopt;
  }
  return part_.layers.first + weights_;
}

std::optional<PartRun::Op> PartRun::Next() const {
  if (finished() || !input_[lap_]) return std::nullopt;
  if (part_.kind == SlotKind::kForward) return NextForward(WorkKind::kForward);
  if (part_.kind == SlotKind::kFused) return NextFused();
  return backpropagates_ ? NextBackward() : NextForward(WorkKind::kRecompute);
}

std::optional<PartRun::Op> PartRun::NextLayer() const {
  std::optional<Op> op = Next();
  if (!op.has_value()) return op;
  if (op->kind == WorkKind::kBackward) op->begin = op->end - 1;
  if (op->kind == WorkKind::kForward || op->kind == WorkKind::kRecompute) {
    op->end = op->begin + 1;
  }
  return op;
}

std::optional<PartRun::Op> PartRun::NextForward(WorkKind kind) const {
  int end = part_.layers.first + weights_;
  if (end <= next_) return std::nullopt;
  const std::vector<int>& saved = Saved();
  const auto inside = std::upper_bound(saved.begin(), saved.end(), next_);
  if (kind == WorkKind::kForward && inside != saved.end()) {
    end = std::min(end, *inside);
  }
  return Op{kind, next_, end};
}

std::optional<PartRun::Op> PartRun::NextFused() const {
  const bool whole = all_weights() && sums_allowed_ && !LastLap() &&
                     next_ == part_.layers.first && !backpropagates_;
  if (HeadOnly() || (fused_ == FusedSlots::kByLayer && !whole)) {
    return NextFusedLayers();
  }
  if (!all_weights() || !sums_allowed_) return std::nullopt;
  return Op{WorkKind::kFused, part_.layers.first, costs_.head() + 1};
}

std::optional<PartRun::Op> PartRun::NextFusedLayers() const {
  const int head = costs_.head();
  if (backpropagates_) {
    if (!sums_allowed_) return std::nullopt;
    if (next_ > head) return Op{WorkKind::kHeadBackward, head, head + 1};
    return Op{WorkKind::kBackward, LastLap() ? next_ - 1 : part_.layers.first,
              next_};
  }
  const int end = part_.layers.first + weights_;
  if (end <= next_) return std::nullopt;
  if (next_ == head) return Op{WorkKind::kHeadForward, head, head + 1};
  return Op{WorkKind::kForward, next_, std::min(end, head)};
}

std::optional<PartRun::Op> PartRun::NextBackward() const {
  if (!gradient_[lap_] || !sums_allowed_) return std::nullopt;
  // In the last lap layer by layer: each one's sums can go down at once.
  const int begin = LastLap() ? next_ - 1 : part_.layers.first;
  return Op{WorkKind::kBackward, begin, next_};
}

PartRun::Results PartRun::Finish(const Op& op) {
  Results results;
  switch (op.kind) {
    case WorkKind::kForward:
      FinishForward(op, results);
      break;
    case WorkKind::kRecompute:
      next_ = op.end;
      backpropagates_ = op.end == part_.layers.last + 1;
      break;
    case WorkKind::kHeadForward:
      next_ = op.end;
      backpropagates_ = true;
      break;
    default:
      FinishBackward(op, results);
  }
  return results;
}

void PartRun::FinishForward(const Op& op, Results& results) {
  next_ = op.end;
  const bool ended = op.end == part_.layers.last + 1;
  const bool saved = std::binary_search(Saved().begin(), Saved().end(), op.end);
  if (ended || saved) {
    results.down.push_back({op.end, part_.direction(), micro_batch(lap_)});
  }
  if (ended) EndLap(results);
}

void PartRun::FinishBackward(const Op& op, Results& results) {
  next_ = op.begin;
  if (LastLap()) {
    for (int layer = op.end - 1; layer >= op.begin; --layer) {
      results.gradients.push_back(layer);
    }
  }
  const int first = part_.layers.first;
  if (next_ > first) return;
  if (first > 0 || TrainsEmbedding(costs_)) {
    results.down.push_back(
        {first, PassDirection::kBackward, micro_batch(lap_)});
  }
  EndLap(results);
}

void PartRun::EndLap(Results& results) {
  ++lap_;
  next_ = part_.layers.first;
  backpropagates_ = false;
  results.lap_done = true;
}

}  // namespace roundhouse
