#include "scheduler/plan/part_time.h"

namespace roundhouse {

int64_t PartNs(const Part& part, const ModelCosts& costs) {
  const auto layer_ns = [&](int layer) {
    const int64_t forward_ns = part.kind == SlotKind::kBackward
                                   ? costs.RecomputeNs(layer)
                                   : costs.ForwardNs(layer);
    return forward_ns + (part.backward() ? costs.BackwardNs(layer) : 0);
  };
  return costs.Sum(part.layers.first, part.layers.last, layer_ns) *
         part.micro_batches.size();
}

}  // namespace roundhouse
