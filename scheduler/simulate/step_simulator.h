// One step of one job in virtual time, with every transfer: devices with
// compute and a link in each direction, host memory that all transfers share,
// reduction on host threads.
//
// A part waits for nothing but what it needs, layer by layer:
//
//   weights      of each layer up before it is first used in the part; those
//                of the next parts (look_ahead) go up while this one computes
//   inputs       gathered rows, the last stage's output, or a saved input: up,
//                one micro-batch ahead of the one that runs
//   gradients    of a boundary: likewise
//
// Activations go first on both links; weights and weight gradients give way to
// them at the next chunk.  A part's gradients go down layer by layer after its
// last micro-batch's backward, under the next part; the part after that waits
// for them (two sets of sums exist).  A layer is reduced when its last
// contribution is down.  A fused part waits for all its weights and runs a
// micro-batch's forward and backward as one interval.
//
// The schedule starts with the first upload and ends with the last reduction.
//
// Pure function; thread-safe; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_SIMULATOR_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_SIMULATOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/simulate/machine.h"
#include "scheduler/simulate/model_costs.h"
#include "scheduler/simulate/part_feed.h"
#include "scheduler/simulate/schedule.h"
#include "scheduler/simulate/step_plan.h"

namespace roundhouse {

// Bytes of gradient contributions on the links: as wide as the weights (`fast`)
// or fp32 (`bitwise`).
enum class Contributions { kModelDtype, kFp32 };

struct StepOptions {
  Contributions contributions = Contributions::kModelDtype;
  // After how many bytes of a bulk transfer an activation may go first.
  int64_t chunk_bytes = int64_t{32} << 20;
  // Splits the intervals of transfers where their rates change, so that each
  // has one rate; else an interval has its mean.  Times are the same.
  bool split_at_rates = true;
};

// Bytes of one contribution to a layer's gradient, and what reducing
// `contributions` of them moves: all read, 4 bytes per parameter written.
int64_t ContributionBytes(const ModelCosts& costs, int layer,
                          Contributions contributions);
int64_t ReduceBytes(const ModelCosts& costs, int layer,
                    Contributions contributions, int64_t count);

// The input gradient of layer 0 goes down where the embedding trains: where the
// head does.
bool TrainsEmbedding(const ModelCosts& costs);

// REQUIRES: the parts are those of a checked plan, the feed sends them in an
// order in which producers precede consumers.
Schedule SimulateParts(const ModelCosts& costs, const Machine& machine,
                       const std::vector<Part>& parts, int micro_batches,
                       const StepOptions& options, PartFeed& feed);

// The plan under an EarliestFinishFeed that sends the running part and as many
// more as the plan looks ahead.  INVALID_ARGUMENT for a plan that CheckStepPlan
// refuses.
absl::StatusOr<Schedule> SimulateStep(const ModelCosts& costs,
                                      const Machine& machine,
                                      const StepPlan& plan, int micro_batches,
                                      const StepOptions& options);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_SIMULATOR_H_
