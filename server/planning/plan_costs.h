// From a model's layers and their measured times to a plan.
//
// Pure functions.
#ifndef ROUNDHOUSE_SERVER_PLANNING_PLAN_COSTS_H_
#define ROUNDHOUSE_SERVER_PLANNING_PLAN_COSTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "base/wire/messages.h"
#include "scheduler/plan/cost_model.h"
#include "scheduler/plan/plan.h"

namespace roundhouse {

// What a job makes of a model: `adapter` not present() trains all of it.
struct TrainedModel {
  ModelConfig config;
  AdapterConfig adapter;
  DType dtype = DType::kF32;  // of weights and activations
};

// Bytes of weights that each layer of a plan uploads, adapters included; the
// last is the head.
std::vector<int64_t> LayerBytes(const TrainedModel& model);
// The same of what a token meets: of experts those that it goes to.  It stands
// for times until they are measured.
std::vector<int64_t> ActiveLayerBytes(const TrainedModel& model);
// Bytes of gradients that a backward stage holds for each layer, in fp32; 0
// where nothing of it trains.
std::vector<int64_t> LayerGradientBytes(const TrainedModel& model);

// The published planner (scheduler/plan/published_planner.h) over the model's
// layers.  A device keeps the gradients of a stage in fp32.  RESOURCE_EXHAUSTED
// names the layer that fits no device.
absl::StatusOr<Plan> PlanFromCosts(const CostModel& costs,
                                   const TrainedModel& model, int device_count,
                                   uint64_t device_memory_bytes);

// Tensors that each slot of the plan sends of a micro-batch: a forward slot its
// own end, and what it writes for backward stages that begin inside it.
// REQUIRES: CheckPlan is OK, a fused plan.
std::vector<uint64_t> OutputsOfSlots(const Plan& plan);

// The most micro-batches of a round that this plan's commands can carry: a
// slot names a buffer per micro-batch for each tensor that it sends, and a
// message is bounded (base/wire/messages.h).  At least 1.
int64_t MaxRoundMicroBatches(const Plan& plan);

// What of a message is left, beside micro-batches, for units and the sums of
// their gradients.
inline constexpr uint64_t kMaxSlotUnitBytes = wire::kMaxMessageBytes / 4 - 512;

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_PLAN_COSTS_H_
