// What a dispatcher is told of a job, and of each of its steps.  Plain values.
#ifndef ROUNDHOUSE_SCHEDULER_DISPATCH_STEP_SPEC_H_
#define ROUNDHOUSE_SCHEDULER_DISPATCH_STEP_SPEC_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "scheduler/plan/boundary_tensors.h"
#include "scheduler/plan/contribution_blocks.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/step_plan.h"

namespace roundhouse {

// What the dispatcher must know of a job's model.
struct JobShape {
  int layer_count = 0;     // layers of plans: decoder layers and the head
  int unit_count = 0;      // unit 0 is the embedding, 1 + l is layer l's
  bool tied_head = false;  // the head also contributes to unit 0
  // Per unit: whether a step leaves a gradient of it to reduce and update.
  // With adapters unit 1 + l stands for those of layer l, and neither the
  // embedding nor the head has any.  Empty: every unit.  REQUIRES: at least
  // one.
  std::vector<bool> trainable;
  // Asynchronous optimizer: a step reads the weights that the update before the
  // last one left, so it may begin, and end, before the last one is done.
  bool stale = false;
  // No sums are kept but the embedding's: a unit's update adds what was
  // contributed.  REQUIRES: steps of one round, without clipping.
  bool one_pass = false;

  // Stands for the head's contributions to a tied unit 0, where those of a slot
  // are meant.
  int head_share() const { return unit_count; }

  bool Trains(int unit) const {
    if (unit == head_share()) return tied_head && Trains(0);
    return trainable.empty() || trainable[unit];
  }
  bool OnePass(int unit) const {
    return one_pass && unit > 0 && unit != head_share();
  }
  int trainable_count() const {
    if (trainable.empty()) return unit_count;
    return static_cast<int>(
        std::count(trainable.begin(), trainable.end(), true));
  }
};

// What one micro-batch takes in one layer on a device of speed 1.
struct MicroBatchCost {
  double forward_ns = 0;
  double backward_ns = 0;  // recomputation included
};

struct StepSpec {
  uint64_t step = 0;  // of an evaluation: the step after which it runs
  bool train = true;  // false: forward and loss only, nothing reduced
  bool clip = false;  // updates wait for every reduction
  Plan plan;
  int groups = 1;  // G: each round's micro-batches form at most as many
  std::vector<int> round_micro_batches;  // micro-batches of each round
  // For all of the job's sums on their way to a reduction; of an evaluation:
  // unused.  Other numbers than the step before REQUIRE that its reductions are
  // done.  REQUIRES: no slot needs more (BlocksOf).
  ContributionBlocks blocks;
  // For all of the job's activations and gradients between stages.  Other
  // numbers than the step before REQUIRE that its rounds have retired.
  // REQUIRES: LeastBoundaryTensors for each micro-batch of the largest round.
  int64_t boundary_blocks = 0;
  // One per layer, as measured; empty: guessed, all layers equal.
  std::vector<MicroBatchCost> layer_costs;
  // What a part needs of its device's memory; empty: every device has it.
  std::function<int64_t(const Part&)> device_bytes;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_DISPATCH_STEP_SPEC_H_
