#include "server/steps/expert_counts.h"

#include <algorithm>

namespace roundhouse {

void ExpertCounts::Add(const RunSlotAction& action, const StepData& step,
                       const ModelConfig& model, const RoundBuffers& buffers,
                       const wire::Arena& arena) {
  if (PickUseOf(action, step, buffers) != wire::PickUse::kWrite) return;
  const auto experts = static_cast<uint64_t>(model.mixture.expert_count);
  uint64_t before = 0;  // layers with experts
  for (int layer = 0; layer <= action.layers.last; ++layer) {
    if (layer == model.layer_count || !model.HasExperts(layer)) continue;
    const uint64_t offset = LoadBytes(before++, experts);
    if (layer < action.layers.first) continue;
    std::vector<int64_t>& sums = tokens_[layer];
    sums.resize(experts);
    for (int64_t i = action.micro_batches.begin; i < action.micro_batches.end;
         ++i) {
      const auto* const loads = arena.At<ExpertLoad>(
          buffers.Loads(action.place.buffer_set, static_cast<int>(i)) + offset,
          experts);
      for (uint64_t e = 0; e < experts; ++e) sums[e] += loads[e];
    }
  }
}

std::vector<LayerLoad> ExpertCounts::Loads() const {
  std::vector<LayerLoad> loads;
  for (const auto& [layer, tokens] : tokens_) {
    const auto has_some = [](int64_t count) { return count > 0; };
    if (std::any_of(tokens.begin(), tokens.end(), has_some)) {
      loads.push_back(LoadOf(layer, tokens));
    }
  }
  return loads;
}

}  // namespace roundhouse
