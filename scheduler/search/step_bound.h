// The least time that a step of consecutive steps can take, whatever the plan,
// and why: what simulated steps are measured against.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_SEARCH_STEP_BOUND_H_
#define ROUNDHOUSE_SCHEDULER_SEARCH_STEP_BOUND_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/simulate/host_work.h"

namespace roundhouse {

struct BoundOptions {
  int micro_batches = 1;  // of a round
  int rounds = 1;
  Updates updates = Updates::kAsReduced;
  Contributions contributions = Contributions::kModelDtype;
};

// All layers forward, recompute and backward and the head once, times
// micro-batches and rounds, over the devices' speeds together.
double ComputeNs(const ModelCosts& costs, const Machine& machine,
                 const BoundOptions& options);

// From the last backward of layer 0 to its next forward: one contribution down,
// its reduction, the update, the new weights up, each at its full rate.  With
// one step's staleness: none.
double TurnAroundNs(const ModelCosts& costs, const Machine& machine,
                    const BoundOptions& options);

// What every plan moves through host memory in a step: each layer up once a
// round and direction (what the largest device could hold in a fused tail once
// a round), one contribution down and reduced a round, the update; a round's
// inputs up once.
int64_t LeastHostBytes(const ModelCosts& costs, const Machine& machine,
                       const BoundOptions& options);

struct StepBound {
  double ns = 0;
  absl::string_view name;  // "compute", "host memory", "layer 0", "updates"
};

// The largest of: ComputeNs; LeastHostBytes at the host's rate; "layer 0",
// compute and turn-around one after the other; and with clipping "updates":
// a layer's forward and all after it follow the updates up to that layer, which
// follow the last reduction.
StepBound BoundOf(const ModelCosts& costs, const Machine& machine,
                  const BoundOptions& options);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SEARCH_STEP_BOUND_H_
