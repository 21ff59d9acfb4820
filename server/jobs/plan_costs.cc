#include "server/jobs/plan_costs.h"

#include <algorithm>

#include "base/model/parameters.h"
#include "base/wire/messages.h"
#include "scheduler/plan/published_planner.h"

namespace roundhouse {

std::vector<int64_t> LayerBytes(const ModelConfig& model, DType dtype) {
  const std::vector<UnitSpec> units = ModelUnits(model);
  std::vector<int64_t> bytes;
  for (int64_t layer = 0; layer <= model.layer_count; ++layer) {
    int64_t sum = 0;
    for (int unit : UnitsOfLayer(model, layer)) {
      sum +=
          units[unit].element_count * static_cast<int64_t>(DTypeBytes(dtype));
    }
    bytes.push_back(sum);
  }
  return bytes;
}

absl::StatusOr<Plan> PlanFromCosts(const CostModel& costs,
                                   const ModelConfig& model, DType dtype,
                                   int device_count,
                                   uint64_t device_memory_bytes) {
  const std::vector<int64_t> bytes = LayerBytes(model, dtype);
  std::vector<LayerCost> layers;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int layer = static_cast<int>(i);
    layers.push_back({costs.Recompute(layer), costs.Backward(layer), bytes[i],
                      bytes[i] / static_cast<int64_t>(DTypeBytes(dtype)) * 4});
  }
  PlannerOptions options;
  options.kind = PlanKind::kFusedTraining;
  options.device_count = device_count;
  options.device_memory_bytes = static_cast<int64_t>(device_memory_bytes);
  return PublishedPlan(layers, options);
}

double PredictedRoundSeconds(const Plan& plan, const CostModel& costs,
                             int device_count) {
  absl::Duration longest;
  auto add = [&](const LayerRange& stage, bool forward) {
    absl::Duration sum;
    for (int layer = stage.first; layer <= stage.last; ++layer) {
      sum += forward ? costs.Recompute(layer) : costs.Backward(layer);
    }
    longest = std::max(longest, sum);
  };
  for (const LayerRange& stage : plan.forward) add(stage, true);
  for (const LayerRange& stage : plan.backward) add(stage, false);
  const auto stages =
      static_cast<int>(plan.forward.size() + plan.backward.size());
  return absl::ToDoubleSeconds(longest) * std::max(stages, device_count);
}

int64_t MaxRoundMicroBatches(const Plan& plan) {
  size_t most_outputs = 1;
  for (const LayerRange& stage : plan.forward) {
    size_t outputs = 1;
    for (const LayerRange& later : plan.backward) {
      if (later.first > stage.first && later.first <= stage.last) ++outputs;
    }
    most_outputs = std::max(most_outputs, outputs);
  }
  // A quarter of the message is for everything else.
  const uint64_t bytes = wire::kMaxMessageBytes / 4 * 3;
  const uint64_t one =
      sizeof(wire::SlotMicroBatch) + most_outputs * sizeof(wire::SlotOutput);
  const uint64_t most =
      std::min<uint64_t>(bytes / one, wire::kMaxArray / most_outputs);
  return static_cast<int64_t>(std::max<uint64_t>(1, most));
}

}  // namespace roundhouse
