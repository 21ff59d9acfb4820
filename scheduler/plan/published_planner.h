// RoundPipe's planner (arXiv 2604.27085): cuts a list of layers into forward
// and backward stages of about equal time, by greedy packing under the best of
// many caps.  It ignores transfers, activations, the number of micro-batches
// and differences between devices.
//
//   W     = the longest single layer pass
//   caps  = every contiguous sum of forward or of backward times within
//           [W, threshold * W]
//   per cap, ascending:
//     fused     layers from the end while the stage holds them
//     forward   the layers before the fused ones, packed from the back
//     backward  the same layers (all, when not fused), packed from the front
//   cost  = max(stages, devices) * cap; strictly cheapest wins
//
// A stage holds a layer while its time stays within the cap and its bytes
// within StageLimitBytes: parameters for a forward stage, parameters and
// trainable bytes for a backward or fused one.
//
// Determinism: times are cut to whole nanoseconds and summed as integers, so
// the order of addition doesn't matter, a sum equal to a cap is within it on
// every machine, and equal costs are exactly equal: of these the smallest cap
// wins.  The plan is a function of the arguments alone.
//
// Pure function; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_PLAN_PUBLISHED_PLANNER_H_
#define ROUNDHOUSE_SCHEDULER_PLAN_PUBLISHED_PLANNER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/plan/plan.h"

namespace roundhouse {

enum class PlanKind {
  kInference,      // forward stages only
  kTraining,       // every layer in a forward and in a backward stage
  kFusedTraining,  // the last layers in one fused stage instead
};

struct LayerCost {
  // One micro-batch through the layer: the forward pass for inference, the
  // recompute for training.  0 to kMaxLayerTime.
  absl::Duration forward_time;
  // Recompute + backward of one micro-batch; not read for inference.
  // 0 to kMaxLayerTime.
  absl::Duration backward_time;
  // What a device uploads to run the layer.
  int64_t parameter_bytes = 0;
  // Bytes of gradient that a backward stage holds for it; 0 if frozen.
  int64_t trainable_bytes = 0;
};

struct PlannerOptions {
  PlanKind kind = PlanKind::kFusedTraining;
  // Devices that share the round, 1 to kMaxPlanDevices.
  int device_count = 1;
  // Memory of the smallest device, in bytes.
  int64_t device_memory_bytes = 0;
  // How far a stage may exceed the longest layer, in per cent of that layer:
  // 100 to 200.  110 is the published value.
  int upper_threshold_percent = 110;
};

// Keeps every sum, and a cost of all stages, within 63 bits of nanoseconds.
inline constexpr absl::Duration kMaxLayerTime = absl::Hours(24);
inline constexpr int kMaxPlanDevices = 1024;

// The most weight (and gradient) bytes of one stage: 0.6 of the device's
// memory is for stages, and half of it for each, because the next stage is
// uploaded while one runs.  Rounded down.
int64_t StageLimitBytes(int64_t device_memory_bytes);

// Errors:
//   INVALID_ARGUMENT    no layers, too many, or a value outside its range,
//                       naming layer and field; no layer takes any time
//   RESOURCE_EXHAUSTED  a layer alone is over StageLimitBytes; names the first
//                       such layer, its bytes and the limit
// The result satisfies CheckPlan for `layers.size()` layers.
absl::StatusOr<Plan> PublishedPlan(const std::vector<LayerCost>& layers,
                                   const PlannerOptions& options);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_PLAN_PUBLISHED_PLANNER_H_
