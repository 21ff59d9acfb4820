#include "scheduler/search/search_shapes.h"

#include <algorithm>

namespace roundhouse {
namespace {

// Only the widest are tried with each length of the tail.
constexpr size_t kWidthsRanked = 4;
// With fewer layers there is nothing between two ramps.
constexpr int kLeastRamped = 8;

}  // namespace

PlanShape SearchShapes::AllWide() const {
  int width = std::min(Devices(), micro_batches_);
  while (!AllowsWidth(width)) --width;
  PlanShape shape;
  shape.saving = options_.saving;
  shape.widths = {width, width, width};
  // Unequal shares need groups to cut at.
  shape.groups = options_.groups > 0        ? options_.groups
                 : machine_.equal_devices() ? width
                                            : micro_batches_;
  shape.balanced = !machine_.equal_devices();
  return shape;
}

std::vector<PlanShape> SearchShapes::OfTail(int tail) const {
  std::vector<PlanShape> shapes;
  PlanShape shape = AllWide();
  shape.fused_layers = tail;
  std::vector<int> widths = WidthsToTry();
  if (widths.size() > kWidthsRanked) widths.resize(kWidthsRanked);
  for (const int layers : StageLengths()) {
    for (const int forward : widths) {
      for (const int backward : widths) {
        shape.forward_layers = shape.backward_layers = layers;
        shape.widths.forward = forward;
        shape.widths.backward = backward;
        for (const int groups : GroupsToTry()) {
          shape.groups = groups;
          shape.by_micro_batches = false;
          shapes.push_back(shape);
          if (micro_batches_ % groups == 0 || shape.balanced) continue;
          shape.by_micro_batches = true;
          shapes.push_back(shape);
        }
      }
    }
  }
  return shapes;
}

std::vector<PlanShape> SearchShapes::FarStarts() const {
  if (!options_.ideas.uneven) return {};
  return machine_.equal_devices() ? Ramped() : WithSlowShares();
}

std::vector<PlanShape> SearchShapes::Ramped() const {
  const int all = costs_.layers;
  if (all < kLeastRamped) return {};
  const struct {
    int forward_layers, backward_layers;
    std::vector<int> first_layers, last_layers;
    int look_ahead;
  } ramps[] = {{3, 2, {1, 1, 1}, {1}, 2},
               {6, 6, {1, 1, 1}, {1, 3}, 2},
               {all, 3, {1, 2, 3}, {1, 2}, 1},
               {all, all, {1, 1}, {2}, 1}};
  std::vector<PlanShape> shapes;
  for (const auto& ramp : ramps) {
    PlanShape& shape = shapes.emplace_back(AllWide());
    shape.forward_layers = ramp.forward_layers;
    shape.backward_layers = ramp.backward_layers;
    shape.first_layers = ramp.first_layers;
    shape.last_layers = ramp.last_layers;
    shape.look_ahead = std::min(ramp.look_ahead, options_.most_look_ahead);
  }
  return shapes;
}

std::vector<PlanShape> SearchShapes::WithSlowShares() const {
  std::vector<PlanShape> shapes;
  PlanShape shape;
  shape.saving = options_.saving;
  shape.slow_share = true;
  shape.groups = GroupsToTry().back();
  shape.look_ahead = std::min(2, options_.most_look_ahead);
  const int most = std::min(Devices(), shape.groups);
  for (const int share : {2, 3}) {
    const int forward = std::max(1, most / share);
    for (const int backward : {most - 1, most - 2}) {
      shape.widths = {forward, most, std::max(1, backward)};
      shapes.push_back(shape);
    }
  }
  return shapes;
}

ShapeLimits SearchShapes::Limits() const {
  ShapeLimits limits;
  limits.layers = costs_.layers;
  limits.devices = Devices();
  limits.micro_batches = micro_batches_;
  limits.most_look_ahead = options_.most_look_ahead;
  limits.ends = options_.ideas.uneven;
  limits.groups = options_.groups == 0;
  limits.equal_devices = machine_.equal_devices();
  limits.widths = WidthsToTry();
  return limits;
}

bool SearchShapes::IdeasAllow(const StepPlan& plan) const {
  for (const auto& shares : plan.shares) {
    if (!options_.ideas.width && shares.size() > 1) return false;
    if (options_.ideas.uneven) continue;
    for (const IndexRange& share : shares) {
      if (share.size() != shares.front().size()) return false;
    }
  }
  return true;
}

bool SearchShapes::AllowsWidth(int width) const {
  if (!options_.ideas.width) return width == 1;
  return options_.ideas.uneven || micro_batches_ % width == 0;
}

// N, N/2, N/3, ... without repeats, at most as many as micro-batches.
std::vector<int> SearchShapes::WidthsToTry() const {
  std::vector<int> widths;
  for (int share = 1; share <= Devices(); ++share) {
    const int width = std::min((Devices() + share - 1) / share, micro_batches_);
    if (!AllowsWidth(width)) continue;
    if (widths.empty() || widths.back() != width) widths.push_back(width);
  }
  return widths;
}

// Longer stages keep fewer activations: who refuses plans may want those.
std::vector<int> SearchShapes::StageLengths() const {
  std::vector<int> lengths = {1, 4};
  const int share = costs_.layers / Devices();
  if (options_.accepts != nullptr && share > 4) lengths.push_back(share);
  return lengths;
}

// Fewer groups need less memory for their sums.
std::vector<int> SearchShapes::GroupsToTry() const {
  if (options_.groups > 0) return {options_.groups};
  const int all = AllWide().groups;
  const int fewer = std::min(Devices(), micro_batches_);
  if (machine_.equal_devices() || fewer == all) return {all};
  return {all, fewer};
}

bool SameKind(const PlanShape& a, const PlanShape& b) {
  const auto end = [](const std::vector<int>& widths, int width) {
    return widths.empty() ? width : widths[0];
  };
  return a.fused_layers == b.fused_layers &&
         a.last_layers.empty() == b.last_layers.empty() &&
         a.by_micro_batches == b.by_micro_batches &&
         a.widths.forward == b.widths.forward &&
         a.widths.backward == b.widths.backward &&
         end(a.last_widths, a.widths.backward) ==
             end(b.last_widths, b.widths.backward) &&
         (a.forward_layers > 1) == (b.forward_layers > 1) &&
         (a.backward_layers > 1) == (b.backward_layers > 1);
}

}  // namespace roundhouse
