#include "server/planning/plan_costs.h"

#include <algorithm>

#include "scheduler/plan/boundary_tensors.h"
#include "scheduler/plan/published_planner.h"

namespace roundhouse {

namespace {

// Adds up `bytes_of(unit)` over the units that each layer reads.
template <typename BytesOf>
std::vector<int64_t> SumOverUnits(const TrainedModel& model, BytesOf bytes_of) {
  std::vector<int64_t> bytes;
  for (int64_t layer = 0; layer <= model.config.layer_count; ++layer) {
    int64_t sum = 0;
    for (int unit : TrainingUnitsOfLayer(model.config, model.adapter, layer)) {
      sum += static_cast<int64_t>(bytes_of(unit));
    }
    bytes.push_back(sum);
  }
  return bytes;
}

}  // namespace

std::vector<int64_t> LayerBytes(const TrainedModel& model) {
  const auto units = TrainingUnits(model.config, model.adapter);
  return SumOverUnits(model, [&](int unit) {
    const bool adapters = unit > model.config.layer_count + 1;
    return units[unit].element_count *
           DTypeBytes(adapters ? DType::kF32 : model.dtype);
  });
}

std::vector<int64_t> ActiveLayerBytes(const TrainedModel& model) {
  std::vector<int64_t> bytes = LayerBytes(model);
  const MixtureConfig& mixture = model.config.mixture;
  for (int64_t layer = 0; layer < model.config.layer_count; ++layer) {
    if (!model.config.HasExperts(layer)) continue;
    const int64_t expert = 3 * model.config.hidden_size * mixture.expert_size *
                           static_cast<int64_t>(DTypeBytes(model.dtype));
    bytes[static_cast<size_t>(layer)] -=
        (mixture.expert_count - mixture.experts_per_token) * expert;
  }
  return bytes;
}

std::vector<int64_t> LayerGradientBytes(const TrainedModel& model) {
  const auto units = TrainingUnits(model.config, model.adapter);
  return SumOverUnits(model, [&](int unit) {
    const bool trains = IsTrainable(model.config, model.adapter, unit);
    return trains ? units[unit].element_count * DTypeBytes(DType::kF32) : 0;
  });
}

absl::StatusOr<Plan> PlanFromCosts(const CostModel& costs,
                                   const TrainedModel& model, int device_count,
                                   uint64_t device_memory_bytes) {
  const std::vector<int64_t> weights = LayerBytes(model);
  const std::vector<int64_t> gradients = LayerGradientBytes(model);
  std::vector<LayerCost> layers;
  for (size_t i = 0; i < weights.size(); ++i) {
    const int layer = static_cast<int>(i);
    layers.push_back({costs.Recompute(layer), costs.Backward(layer), weights[i],
                      gradients[i]});
  }
  PlannerOptions options;
  options.kind = PlanKind::kFusedTraining;
  options.device_count = device_count;
  options.device_memory_bytes = static_cast<int64_t>(device_memory_bytes);
  return PublishedPlan(layers, options);
}

std::vector<uint64_t> OutputsOfSlots(const Plan& plan) {
  std::vector<uint64_t> outputs;
  const BoundaryMap map = MapOf(plan, RoundKind::kTrain, RowGradient::kRead);
  for (const BoundaryMap::SlotTensors& slot : map.slots) {
    outputs.push_back(slot.outputs.size());
  }
  return outputs;
}

int64_t MaxRoundMicroBatches(const Plan& plan) {
  const std::vector<uint64_t> outputs = OutputsOfSlots(plan);
  const uint64_t most_outputs =
      *std::max_element(outputs.begin(), outputs.end());
  // A quarter of the message is for everything else.
  const uint64_t bytes = wire::kMaxMessageBytes / 4 * 3;
  const uint64_t one =
      sizeof(wire::SlotMicroBatch) + most_outputs * sizeof(wire::SlotOutput);
  const uint64_t most =
      std::min<uint64_t>(bytes / one, wire::kMaxArray / most_outputs);
  return static_cast<int64_t>(std::max<uint64_t>(1, most));
}

}  // namespace roundhouse
