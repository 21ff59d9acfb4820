// Adds the gradients of a slot's micro-batches in the job's order
// (docs/design/numerics.md): inside a group in micro-batch order, the first one
// copied; groups up the fixed tree; one sum per subtree, handed over as soon as
// it is complete.
//
// Thread-compatible: used by the thread that computes.
#ifndef ROUNDHOUSE_WORKER_SLOT_GRADIENT_SUMS_H_
#define ROUNDHOUSE_WORKER_SLOT_GRADIENT_SUMS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/reduction.h"
#include "worker/board/job_tables.h"
#include "worker/board/slot_plan.h"
#include "worker/device/device.h"
#include "worker/model/stage_run.h"

namespace roundhouse::worker {

// Where sums live.  `unit` is a position in RunSlot::units.
class SumStore {
 public:
  virtual ~SumStore() = default;
  // A buffer for one sum of the unit, zero where it was never written since the
  // slot began; may block until one is free.  CANCELLED: the slot is given up.
  virtual absl::StatusOr<DeviceBuffer*> TakeSum(size_t unit) = 0;
  virtual void GiveSum(size_t unit, DeviceBuffer* sum) = 0;
  // RunSlot::contributions[contribution] is complete in `sum`.
  virtual absl::Status SendSum(size_t unit, uint32_t contribution,
                               DeviceBuffer* sum) = 0;
};

class GradientSums : public GradientSink {
 public:
  // All references outlive it.
  GradientSums(const wire::RunSlot& slot, const SlotPlan& plan,
               const JobTables& tables, Stream& stream, SumStore& store);

  // Micro-batches in order.
  void BeginMicroBatch(size_t micro_batch) { micro_batch_ = micro_batch; }

  void OnGradient(int64_t layer, ParamRole role, const float* fp32,
                  int64_t element_count) override;

  // All gradients of `layer` for this micro-batch were given.  The first error
  // of OnGradient since the last call, or one of folding and sending.
  // INTERNAL: a parameter's gradient is missing.
  absl::Status FinishLayer(int64_t layer);

 private:
  struct UnitSums {
    DeviceBuffer* group = nullptr;  // the running group's sum
    uint32_t gradients = 0;         // of this micro-batch
    size_t next = 0;                // of the unit's contributions
    uint32_t groups_folded = 0;     // of that contribution
    TreeFold fold;
    std::vector<DeviceBuffer*> nodes;  // by the fold's value numbers
  };

  absl::Status Add(int64_t layer, ParamRole role, const float* fp32,
                   int64_t element_count);
  absl::Status FinishUnit(size_t unit);
  absl::Status FoldGroup(size_t unit);
  absl::Status Apply(size_t unit, const std::vector<TreeAdd>& additions);

  const wire::RunSlot& slot_;
  const SlotPlan& plan_;
  const JobTables& tables_;
  Stream& stream_;
  SumStore& store_;
  size_t micro_batch_ = 0;
  absl::Status status_;
  std::vector<UnitSums> units_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_GRADIENT_SUMS_H_
