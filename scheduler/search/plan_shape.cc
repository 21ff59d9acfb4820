#include "scheduler/search/plan_shape.h"

#include <algorithm>
#include <vector>

#include "scheduler/search/balanced_plan.h"

namespace roundhouse {
namespace {

// The first ones as long as `lengths` says.
std::vector<LayerRange> EqualStages(int end, int length,
                                    const std::vector<int>& lengths) {
  std::vector<LayerRange> stages;
  for (int first = 0; first < end; first = stages.back().last + 1) {
    const size_t i = stages.size();
    const int layers = i < lengths.size() ? lengths[i] : length;
    stages.push_back({first, std::min(first + layers, end) - 1});
  }
  return stages;
}

Plan StagesOf(const PlanShape& shape, const ModelCosts& costs) {
  const int tail = costs.layers - shape.fused_layers;
  Plan stages;
  stages.fused = true;
  stages.saving = shape.saving;
  stages.forward = EqualStages(tail, shape.forward_layers, shape.first_layers);
  stages.backward = EqualStages(tail, shape.backward_layers, shape.last_layers);
  stages.backward.push_back({tail, costs.head()});
  std::reverse(stages.backward.begin(), stages.backward.end());
  return stages;
}

// Per slot.
std::vector<int> WidthsOf(const PlanShape& shape, const Plan& stages) {
  const auto own = [](const std::vector<int>& widths, size_t i, int usual) {
    return i < widths.size() ? widths[i] : usual;
  };
  std::vector<int> widths;
  for (const PlanSlot& slot : SlotsOf(stages)) {
    const auto stage = static_cast<size_t>(slot.stage);
    if (slot.again) {
      widths.push_back(shape.widths.forward);
    } else if (slot.kind == SlotKind::kForward) {
      widths.push_back(own(shape.first_widths, stage, shape.widths.forward));
    } else if (slot.kind == SlotKind::kFused) {
      widths.push_back(shape.widths.fused);
    } else {
      widths.push_back(own(shape.last_widths,
                           stages.backward.size() - 1 - stage,
                           shape.widths.backward));
    }
  }
  return widths;
}

// Writes the length and width of every one of the stages.
void SpellOut(const std::vector<LayerRange>& stages, int width,
              std::vector<int>& lengths, std::vector<int>& widths) {
  lengths.clear();
  for (const LayerRange& stage : stages) {
    lengths.push_back(stage.layer_count());
  }
  widths.resize(stages.size(), width);
}

// The speeds of the slowest device and of others as fast as the fastest one.
std::vector<double> OneSlow(int parts, const Machine& machine) {
  const auto [slowest, fastest] = std::minmax_element(
      machine.devices.begin(), machine.devices.end(),
      [](const SimulatedDevice& a, const SimulatedDevice& b) {
        return a.speed < b.speed;
      });
  std::vector<double> speeds(parts, fastest->speed);
  speeds.back() = slowest->speed;
  return speeds;
}

StepPlan EqualPlan(const PlanShape& shape, const Plan& stages,
                   const std::vector<int>& widths, const Machine& machine,
                   int micro_batches) {
  StepPlan plan;
  plan.stages = stages;
  plan.groups = shape.groups;
  const std::vector<IndexRange> ranges =
      GroupRanges(micro_batches, shape.groups);
  plan.shares.reserve(widths.size());
  int before = 0;
  bool forward_before = true;
  for (const PlanSlot& slot : SlotsOf(stages)) {
    const bool forward = slot.kind == SlotKind::kForward;
    const int parts =
        std::min(widths[plan.shares.size()], static_cast<int>(ranges.size()));
    if (parts == before && forward == forward_before) {
      plan.shares.push_back(plan.shares.back());
    } else if (forward && shape.slow_share) {
      plan.shares.push_back(
          ProportionalShares(ranges, OneSlow(parts, machine)));
    } else {
      plan.shares.push_back(shape.by_micro_batches
                                ? EvenShares(ranges, parts)
                                : UniformShares(ranges, parts));
    }
    before = parts;
    forward_before = forward;
  }
  return plan;
}

}  // namespace

PlanShape SpelledOut(const PlanShape& shape, int layers) {
  const int tail = layers - shape.fused_layers;
  PlanShape all = shape;
  SpellOut(EqualStages(tail, shape.forward_layers, shape.first_layers),
           shape.widths.forward, all.first_layers, all.first_widths);
  SpellOut(EqualStages(tail, shape.backward_layers, shape.last_layers),
           shape.widths.backward, all.last_layers, all.last_widths);
  return all;
}

StepPlan ShapePlan(const PlanShape& shape, const ModelCosts& costs,
                   const Machine& machine, int micro_batches) {
  const Plan stages = StagesOf(shape, costs);
  const std::vector<int> widths = WidthsOf(shape, stages);
  StepPlan plan =
      shape.balanced ? BalancedPlan(stages, widths, micro_batches, shape.groups,
                                    costs, machine)
                     : EqualPlan(shape, stages, widths, machine, micro_batches);
  plan.look_ahead = shape.look_ahead;
  return plan;
}

}  // namespace roundhouse
