// What a job will need, from its spec and its model: the plan it begins with,
// its steps, its host memory.
//
// Pure functions.
#ifndef ROUNDHOUSE_SERVER_PLANNING_JOB_NEEDS_H_
#define ROUNDHOUSE_SERVER_PLANNING_JOB_NEEDS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/model/config.h"
#include "base/model/directory.h"
#include "scheduler/plan/plan.h"
#include "scheduler/simulate/host_work.h"
#include "server/planning/plan_costs.h"
#include "server/planning/plan_limits.h"
#include "server/planning/round_buffers.h"
#include "server/spec/spec.h"
#include "server/weights/training_state.h"

namespace roundhouse {

// In which sums of gradients leave the devices and lie in host memory.
// Adapters are few, and trained in fp32: theirs are fp32 however fast.
DType ContributionDType(const ResolvedSpec& spec);

// The determinism of a job that says nothing of it.
Determinism UsualDeterminism(const DeviceRoom& device);
// What most of the model's weights are in; without weights, what its
// config.json says.
DType MostlyIn(const ModelDirectory& model);
// The same, but bf16 for fp16: every device has it, and it needs no loss scale.
DType UsualDtype(const ModelDirectory& model);
SpecDefaults DefaultsOf(const ModelDirectory& model, const DeviceRoom& device);

TrainedModel TrainedOf(const ResolvedSpec& spec, const ModelConfig& model);
// Options of the job's two allocations.  The buffers are without boundary
// tensors.
TrainingStateOptions StateOptions(uint64_t job, const ResolvedSpec& spec,
                                  const ModelConfig& model);
RoundBuffersOptions BufferOptions(const ResolvedSpec& spec,
                                  const ModelConfig& model, const Plan& plan,
                                  int64_t max_row_tokens, int device_count);

// INVALID_ARGUMENT naming the stage of an own plan that asks for more devices
// than there are.  A job that has begun goes on with fewer: parts share them.
absl::Status CheckWidths(const ResolvedSpec& spec, int device_count);

PlanLimitsOptions LimitsOf(const ResolvedSpec& spec, const ModelConfig& model,
                           int64_t max_row_tokens, int device_count,
                           const DeviceRoom& device);

// Rounds of a full step.
int64_t StepRounds(const ResolvedSpec& spec);
// No gradient sums are kept (TrainingStateOptions::one_pass).
bool UpdatesInOnePass(const ResolvedSpec& spec);
// As the simulator is to have them.
Updates UpdatesOf(const ResolvedSpec& spec);

// What a job can have at most.
struct HostRoom {
  int device_count = 1;
  uint64_t host_bytes = 0;  // the arena's limit
};

// The plan of a job that has measured nothing yet.  Of the inputs of its
// backward stages it keeps as many as there is room for, where the spec leaves
// that open; where nothing fits, it is the plan that needs least.  A slot
// may be too large for a device (PlanLimits::CheckSlots).  RESOURCE_EXHAUSTED
// names the layer that fits no device; INVALID_ARGUMENT a wrong `plan` field.
absl::StatusOr<Plan> InitialPlan(const ResolvedSpec& spec,
                                 const ModelConfig& model, const HostRoom& room,
                                 const DeviceRoom& device);

// What a job needs of the host arena, in bytes, with this plan.
struct HostNeed {
  uint64_t base_bytes = 0;  // frozen weights, which other jobs may share
  uint64_t state_bytes = 0;
  uint64_t contribution_bytes = 0;  // on their way to a reduction
  uint64_t buffer_bytes = 0;        // activations and tokens
  int64_t boundary_tensors = 0;     // in them (RoundBuffersOptions)
  // As buffer_bytes, with as many tensors as delay no slot.
  uint64_t wanted_buffer_bytes = 0;
  // Tables of the files worker at load and save, and of eval_prompts.
  uint64_t table_bytes = 0;
  uint64_t total() const {
    return base_bytes + state_bytes + contribution_bytes + buffer_bytes +
           table_bytes;
  }
};

// What a running job's arena memory holds, in bytes.
struct HostUse {
  uint64_t weight_bytes = 0;      // compute weights
  uint64_t optimizer_bytes = 0;   // masters and moments
  uint64_t gradient_bytes = 0;    // sums and contributions
  uint64_t activation_bytes = 0;  // round buffers, with tokens and labels
  uint64_t total() const {
    return weight_bytes + optimizer_bytes + gradient_bytes + activation_bytes;
  }
};

// With as many boundary tensors as three slots a device need, or as the room
// is for, down to what kLeastSlotsAhead need.
HostNeed NeedOf(const ResolvedSpec& spec, const ModelConfig& model,
                const Plan& plan, int64_t max_row_tokens, const HostRoom& room);

// Optimizer steps of a job over `rows` training rows.
int64_t TotalSteps(const JobSpec& spec, int64_t rows);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_JOB_NEEDS_H_
