// Whether a schedule is one that devices could have run: the judge of every
// simulator and planner here.  It reads nothing but the intervals.
//
//   1. Every interval is of a resource, layers and a micro-batch that exist,
//      and compute takes exactly as long as the costs say.
//   2. No two intervals overlap on a resource.
//   3. Every layer runs once forward and once backward per micro-batch, and is
//      recomputed once, on the device of its backward, unless it was fused:
//      then that device computed nothing else of the job's round in between.
//   4. Nothing starts before what it needs is on its device.
//
// Under the published rules what another device made arrives `hop_ns` after its
// end.  With transfers it arrives by intervals of the links:
//
//   5. No link is faster than its rate, at no moment are all transfers and
//      reductions together faster than host memory.
//   6. Activations go down after they are made, up after they are down, and
//      are up before they are used; saved inputs likewise.
//   7. A layer's weights are up, once per device and direction, before it is
//      first used there.
//   8. A device's gradients of a layer go down after its last backward of it,
//      as whole contributions, and are reduced, all of them, once they are
//      down.  The input gradient of layer 0 goes down where the embedding
//      trains.
//   9. What is known to be on a device fits into its memory: weights from their
//      upload to their last use, one fp32 sum from a layer's first backward to
//      the end of its download, inner activations while they are
//      made or used, a fused part's in between, too.
//
// What a part did that was given up (Interval::lost) takes resources like all
// else, and may take less long; of its results only those count that were down
// by then.
//
// Consecutive steps are checked round by round, and moreover:
//
//  10. A layer is updated once a step, with all its bytes, at no more than
//      kMostUpdateRate, after its last reduction of the step; with clipping
//      after the last one of all layers.  In one pass that reduction begins
//      when every part that reads the layer has committed: its compute has
//      ended, and all that it sends is down.
//  11. Trained weights of a step go up after the update that wrote them, and
//      that update came after the last upload of what it overwrote.
//  12. A layer's contributions of a round go down after the round before was
//      reduced, in one pass updated; a step's first reduction of it comes after
//      the update that read the sum of the step before.
//  13. Layer 0's inputs go up after the round before the last was reduced, and
//      after all its input gradients of the step whose update they show.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_CHECKER_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_CHECKER_H_

#include <vector>

#include "absl/status/status.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/simulate/schedule.h"
#include "scheduler/simulate/step_simulator.h"

namespace roundhouse {

struct CheckOptions {
  Machine machine;
  int micro_batches = 1;
  // RoundPipe's published simulator starts the head's forward while it waits
  // for the input.
  bool head_forward_waits = true;
  // The round is not its step's first: reductions read the sum, too.
  bool adds_to_sum = false;
  // In one pass reductions write no sum, and updates read none.
  Updates updates = Updates::kNone;
};

// FAILED_PRECONDITION naming the interval, or the layer and micro-batch, that
// breaks a rule first.
absl::Status CheckPublishedSchedule(const Schedule& schedule,
                                    const ModelCosts& costs,
                                    const CheckOptions& options);
absl::Status CheckStepSchedule(const Schedule& schedule,
                               const ModelCosts& costs,
                               const CheckOptions& options,
                               Contributions contributions);

struct StepsCheckOptions {
  Machine machine;
  int micro_batches = 1;  // of a round
  int steps = 1;
  int rounds = 1;  // of a step
  Updates updates = Updates::kAsReduced;
  Contributions contributions = Contributions::kModelDtype;
};

// A job of several (Interval::job is its place among them).
struct JobCheck {
  const ModelCosts* costs = nullptr;
  StepsCheckOptions options;
};

// Each job by itself, and no resource used by two at once, no link or host
// memory too fast for all together.  REQUIRES: as CheckStepsSchedule, at least
// one job; all have the same machine.
absl::Status CheckJobsSchedule(const Schedule& schedule,
                               const std::vector<JobCheck>& jobs);

// REQUIRES: transfers were split where their rates change.
absl::Status CheckStepsSchedule(const Schedule& schedule,
                                const ModelCosts& costs,
                                const StepsCheckOptions& options);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_CHECKER_H_
