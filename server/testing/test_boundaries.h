// The blocks that a slot's activations and gradients have in a round of its
// own, in which none is used twice.
#ifndef ROUNDHOUSE_SERVER_TESTING_TEST_BOUNDARIES_H_
#define ROUNDHOUSE_SERVER_TESTING_TEST_BOUNDARIES_H_

#include <algorithm>
#include <memory>
#include <utility>

#include "base/work_kinds.h"
#include "scheduler/dispatch/boundary_pool.h"
#include "scheduler/plan/boundary_tensors.h"

namespace roundhouse {

// Takes a block of `pool` for each tensor of a round of `micro_batches`.
inline RoundBoundaries TestRound(const Plan& plan, RowGradient rows,
                                 int micro_batches, BlockPool& pool,
                                 RoundKind kind = RoundKind::kTrain) {
  auto map = std::make_shared<const BoundaryMap>(MapOf(plan, kind, rows));
  pool.SetCount(static_cast<int64_t>(map->tensors.size()) * micro_batches);
  RoundBoundaries round(map, micro_batches);
  round.TakeRows(pool);
  for (int slot = 0; slot < static_cast<int>(map->slots.size()); ++slot) {
    round.TakeSlot(slot, {0, micro_batches}, pool);
  }
  return round;
}

// The plan's slot of this kind with these layers.
inline int TestSlot(const Plan& plan, SlotKind kind, const LayerRange& layers) {
  const std::vector<PlanSlot> slots = SlotsOf(plan);
  const auto found =
      std::find_if(slots.begin(), slots.end(), [&](const PlanSlot& slot) {
        return (slot.kind == SlotKind::kForward) ==
                   (kind == SlotKind::kForward) &&
               slot.layers == layers;
      });
  return static_cast<int>(found - slots.begin());
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_TESTING_TEST_BOUNDARIES_H_
