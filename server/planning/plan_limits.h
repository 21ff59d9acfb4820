// Which plans a job can run: what a slot holds on its device, what its command
// can name, what the plan's rounds take of host memory.
//
// Immutable; thread-safe.
#ifndef ROUNDHOUSE_SERVER_PLANNING_PLAN_LIMITS_H_
#define ROUNDHOUSE_SERVER_PLANNING_PLAN_LIMITS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/model/working_memory.h"
#include "base/work_kinds.h"
#include "scheduler/plan/plan.h"
#include "server/planning/device_room.h"
#include "server/planning/plan_costs.h"
#include "server/planning/round_buffers.h"

namespace roundhouse {

struct PlanLimitsOptions {
  TrainedModel model;
  // The job's; whose plan it is does not matter here.
  RoundBuffersOptions buffers;
  int64_t groups = 1;  // of a full round
  DeviceRoom device;
  // The largest micro-batch of a backward slot; read with
  // device.with_libraries.
  WorkingShape working;
};

class PlanLimits {
 public:
  explicit PlanLimits(const PlanLimitsOptions& options);

  // The most that one slot of the plan holds on its device: weights, gradient
  // sums and their rounded copies, what goes to and fro for two of its
  // micro-batches, and with device.with_libraries what computes one (else that
  // comes on top).  Never less than what worker/board/slot_plan.h counts for
  // its command.  REQUIRES: CheckPlan is OK, a fused plan.
  uint64_t LargestSlotBytes(const Plan& plan) const;

  // Stages whose slots are too large for a device, in halves until they are not
  // or have one layer.  REQUIRES: as above, and the plan splits no slot.
  Plan CutToFit(Plan plan) const;

  // RESOURCE_EXHAUSTED: LargestSlotBytes is more than a device has.
  // INVALID_ARGUMENT: a stage has more sums to send than a command can name.
  absl::Status CheckSlots(const Plan& plan) const;

  const PlanLimitsOptions& options() const { return options_; }

 private:
  struct Layer {
    uint64_t weight_bytes = 0;
    uint64_t sum_bytes = 0;      // of one sum of all that trains
    uint64_t rounded_bytes = 0;  // of its rounded copy
    uint64_t units = 0;
    uint64_t trained_units = 0;
  };

  // Per unit, on the device at once.
  struct HeldSums {
    uint64_t sums = 0;
    uint64_t rounded = 0;
  };

  std::vector<uint64_t> SlotBytes(const Plan& plan) const;
  // Sums held for a slot that sends `sent` sums of each unit and folds
  // `folded`.
  HeldSums Held(int64_t sent, int64_t folded) const;
  uint64_t StageBytes(const LayerRange& stage, const HeldSums& held,
                      PassDirection direction) const;
  uint64_t WorkingOf(const LayerRange& stage, PassDirection direction) const;
  // Bytes for a command that sends `sums` of each unit.
  uint64_t UnitBytes(const LayerRange& stage, uint64_t sums) const;

  const PlanLimitsOptions options_;
  std::vector<Layer> layers_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_PLAN_LIMITS_H_
