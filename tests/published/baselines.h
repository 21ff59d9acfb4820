// The five schedules that RoundPipe (arXiv 2604.27085) compares, under the
// rules of its published simulator: compute and a fixed hop between devices,
// no weight traffic, no optimizer, one isolated synchronous step.
//
//   gpipe              stage s on device s; all forward, then all backward
//   1f1b               the same stages; min(M, N - rank) forward, then backward
//                      and forward in turn
//   interleaved-1f1b   stage s on device s mod N; v stages a device
//   looped-bfs         the same stages; breadth first
//   roundpipe          slots in one order over all devices; rounds of N
//                      micro-batches; separate forward and backward stages
//
// A baseline's backward operation recomputes its stage and is indivisible.
// RoundPipe's may recompute, or run the head forward, while it waits for the
// gradient: published numbers are made that way, also where the head's input
// is not there yet.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_TESTS_PUBLISHED_BASELINES_H_
#define ROUNDHOUSE_TESTS_PUBLISHED_BASELINES_H_

#include <array>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/plan.h"
#include "scheduler/simulate/schedule.h"

namespace roundhouse {

enum class Baseline {
  kGpipe,
  k1f1b,
  kInterleaved1f1b,
  kLoopedBfs,
  kRoundpipe,
};
inline constexpr std::array kBaselines = {
    Baseline::kGpipe, Baseline::k1f1b, Baseline::kInterleaved1f1b,
    Baseline::kLoopedBfs, Baseline::kRoundpipe};

// "gpipe", "1f1b", ...
absl::string_view BaselineName(Baseline baseline);

// Stages 0..S-1 of a baseline other than roundpipe: contiguous and ascending
// over layers 0..L (L is the head), in the last stage that has any.  A stage
// may be empty.
using Stages = std::vector<LayerRange>;

// One of the four baselines with fixed places.
// REQUIRES: not roundpipe.
// INVALID_ARGUMENT for counts outside 1..kMax..., stages that do not cover the
// layers, or whose number is not a multiple of `device_count` (gpipe, 1f1b:
// not equal to it).
absl::StatusOr<Schedule> SimulatePlacedBaseline(Baseline baseline,
                                                const ModelCosts& costs,
                                                const Stages& stages,
                                                int device_count,
                                                int micro_batch_count);

// INVALID_ARGUMENT for counts outside 1..kMax..., or a plan that is not a
// fused one over L + 1 layers (CheckPlan).
absl::StatusOr<Schedule> SimulateRoundpipe(const ModelCosts& costs,
                                           const Plan& plan, int device_count,
                                           int micro_batch_count);

// Every device runs all layers on a share of the micro-batches of its own: the
// other end of the space that RoundPipe is one end of (MegaTrain, arXiv
// 2604.05091).  Nothing crosses between devices, so under these rules all that
// it loses is an uneven split.
// INVALID_ARGUMENT for counts outside 1..kMax....
absl::StatusOr<Schedule> SimulateAllWide(const ModelCosts& costs,
                                         int device_count,
                                         int micro_batch_count);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_TESTS_PUBLISHED_BASELINES_H_
