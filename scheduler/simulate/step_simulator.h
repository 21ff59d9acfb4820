// Steps of one job in virtual time, with every transfer: devices with compute
// and a link in each direction, host memory that all transfers share, reduction
// and updates on host threads.
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
// contribution is down.  A fused part runs a micro-batch's forward and backward
// one after the other, as one interval or layer by layer (FusedSlots).
//
// The schedule of one step starts with the first upload and ends with the last
// reduction.
//
// Consecutive steps have no barrier between them: a part of the next round is
// sent to a device like any other, and each of its transfers waits for what
// host_work.h says and for nothing else.  Of weights that are only partly
// trained the frozen bytes wait for no update.
//
// Pure function; thread-safe; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_SIMULATOR_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_SIMULATOR_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/part_time.h"
#include "scheduler/simulate/host_work.h"
#include "scheduler/simulate/part_feed.h"
#include "scheduler/simulate/schedule.h"

namespace roundhouse {

// What a schedule may be told to do without, so that each idea's share is seen.
struct Ideas {
  // Ideas of the planner: slots on several devices; shares of a slot that
  // differ, and slots at the ends that are wider than the others.
  bool width = true;
  bool uneven = true;
  // Ideas of the machine. Activations go before bulk, lower layers' host work
  // goes first; else all goes as it comes.
  bool priorities = true;
  // The next parts' weights while a part computes; else after it.
  bool prefetch = true;
  // A layer computes once its own weights are there, and its weights go up once
  // it is updated; else the whole part, and once the whole step is.
  bool per_layer = true;

  friend bool operator==(const Ideas&, const Ideas&) = default;
};

struct StepOptions {
  Contributions contributions = Contributions::kModelDtype;
  // After how many bytes of a bulk transfer an activation may go first: those
  // that a GPU's worker has in flight (worker/device/cuda).
  int64_t chunk_bytes = int64_t{6} << 20;
  // REQUIRES: not kNone where devices are lost or parts given up.
  Intervals intervals = Intervals::kByRate;
  // How long a layer of a backfill part may hold a device beyond the
  // earliest time at which another part could go on there.
  int64_t backfill_grace_ns = 0;
  // As FedJob's, of a single job.  Without prefetch nobody counts them.
  std::optional<int64_t> boundary_tensors = {};
  // The simulation ends, with Schedule::missing, as soon as its compute is
  // certain to end later than this after that of the first step, of a single
  // one after its begin.
  double give_up_ns = std::numeric_limits<double>::infinity();
  Ideas ideas;
  FusedSlots fused = FusedSlots::kWhole;
};

// A job of a simulation.
struct SimulatedJob {
  const ModelCosts* costs = nullptr;
  std::vector<Part> parts;  // of all rounds of all steps (RepeatedParts)
  HostWork::Rounds rounds;
};

// The device falls out of the server for good.
struct DeviceLoss {
  int device = 0;
  int64_t at_ns = 0;
};

// Several jobs on the same devices, links and host memory, which lose these
// devices on the way.
// REQUIRES: the parts are those of checked plans, the feed sends those of each
// job in an order in which producers precede consumers, and takes losses if
// there are any.
Schedule SimulateJobs(const Machine& machine,
                      const std::vector<SimulatedJob>& jobs,
                      const StepOptions& options,
                      const std::vector<DeviceLoss>& losses, PartFeed& feed);

// One step of one job.  REQUIRES: as SimulateJobs.
Schedule SimulateParts(const ModelCosts& costs, const Machine& machine,
                       const std::vector<Part>& parts, int micro_batches,
                       const StepOptions& options, PartFeed& feed);

// The plan under a DispatcherFeed (without prefetch under an
// EarliestFinishFeed: the Dispatcher cannot do without).  INVALID_ARGUMENT for
// a plan that CheckStepPlan refuses, or that needs more boundary_tensors.
absl::StatusOr<Schedule> SimulateStep(const ModelCosts& costs,
                                      const Machine& machine,
                                      const StepPlan& plan, int micro_batches,
                                      const StepOptions& options);

struct StepsOptions {
  StepOptions step;
  int steps = 10;
  int rounds = 1;  // of each step, each of them the plan once
  Updates updates = Updates::kAsReduced;
};

// INVALID_ARGUMENT for one pass over steps of several rounds, whose sums are
// kept, or without the Dispatcher (Ideas::prefetch), which alone decides it.
absl::Status CheckUpdates(Updates updates, int rounds, const Ideas& ideas);

inline constexpr int kMaxSimulatedRounds = 1000;  // of all steps

// Consecutive steps of `rounds` times the plan, likewise.  INVALID_ARGUMENT as
// SimulateStep, for no steps or rounds, too many, or what CheckUpdates refuses.
absl::StatusOr<Schedule> SimulateSteps(const ModelCosts& costs,
                                       const Machine& machine,
                                       const StepPlan& plan, int micro_batches,
                                       const StepsOptions& options);

// The parts of consecutive rounds: slots and micro-batches are numbered on.
std::vector<Part> RepeatedParts(const std::vector<Part>& parts, int rounds,
                                int micro_batches);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_SIMULATOR_H_
