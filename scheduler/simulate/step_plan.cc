#include "scheduler/simulate/step_plan.h"

namespace roundhouse {

int64_t PartNs(const Part& part, const ModelCosts& costs) {
  int64_t ns = 0;
  for (int layer = part.layers.first; layer <= part.layers.last; ++layer) {
    if (part.pass == SlotPass::kBackward) ns += costs.RecomputeNs(layer);
    if (part.pass != SlotPass::kBackward) ns += costs.ForwardNs(layer);
    if (part.pass != SlotPass::kForward) ns += costs.BackwardNs(layer);
  }
  return ns * part.micro_batches.size();
}

}  // namespace roundhouse
