// What a RunSlot command amounts to on a device: checked against the job's
// tables and the arena, indexed for the threads that run it, with the device
// memory it needs.  Pure; immutable once made.
#ifndef ROUNDHOUSE_WORKER_BOARD_SLOT_PLAN_H_
#define ROUNDHOUSE_WORKER_BOARD_SLOT_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/wire/messages.h"
#include "worker/board/job_tables.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

// A family of equal device buffers: at most `count` of `bytes` each.
struct BufferNeed {
  uint64_t bytes = 0;
  uint64_t count = 0;

  uint64_t total_bytes() const;  // as the device counts them
};

struct PlannedMicroBatch {
  bool first_of_group = false;
  bool last_of_group = false;
  std::vector<uint32_t> outputs;  // indices of RunSlot::outputs
};

struct PlannedUnit {
  uint64_t weight_bytes = 0;
  // Indices of RunSlot::contributions in the order of their groups; empty for
  // a frozen unit.
  std::vector<uint32_t> contributions;
  BufferNeed sums;  // fp32 gradient sums alive at once
  // Rounded copies of those that go down, where RunSlot::contribution_dtype is
  // not fp32: one going down, and one that the next sum is rounded to; with
  // SumPlace::kDevice all.
  BufferNeed rounded;

  // What is copied to the arena.
  const BufferNeed& down() const { return rounded.count > 0 ? rounded : sums; }
};

// Where a micro-batch's picks of one layer lie, and the word that says so.
struct LayerPicks {
  wire::BufferRef buffer;
  wire::WordRef word;
  uint64_t loads_offset = 0;  // of its experts; 0: nobody wants them
};

struct SlotPlan {
  std::vector<PlannedMicroBatch> micro_batches;
  std::vector<PlannedUnit> units;                  // as RunSlot::units
  std::vector<std::vector<uint32_t>> layer_units;  // by layer - first_layer
  // The slot's layers with experts where picks are given: their numbers among
  // all layers with experts, by layer - first_layer; -1: none.
  std::vector<int> expert_layers;
  uint64_t expert_layer_count = 0;  // of the model
  uint64_t expert_count = 0;        // of each
  BufferNeed inputs;                // one computing, one uploaded ahead
  BufferNeed gradients;             // likewise, of backward slots
  BufferNeed outputs;         // one micro-batch's written, one's downloading
  uint64_t weight_bytes = 0;  // of all units
  // What a library takes beside all this while the slot computes, at most; 0
  // where that is not of the device's limit.
  uint64_t working_bytes = 0;

  // Everything the slot can hold at one time.
  uint64_t device_bytes() const;
  // What is left of that once its last layer has been computed.
  uint64_t draining_bytes() const;

  // None where the layer has no experts, or no picks are given.
  std::optional<LayerPicks> PicksOf(const wire::SlotMicroBatch& micro_batch,
                                    int layer_of_slot) const;

  static bool HasHead(SlotKind kind);
  static bool HasBackward(SlotKind kind);
};

// INVALID_ARGUMENT naming field and entry: a buffer or word outside the arena,
// a size that does not fit the shape, layers without their units, groups that
// the contributions do not cover exactly, a contribution of a frozen unit,
// `train` that does not fit the kind.
// RESOURCE_EXHAUSTED: the slot alone needs more than the device has.
absl::StatusOr<SlotPlan> PlanSlot(const wire::RunSlot& slot,
                                  const JobTables& tables, uint64_t arena_bytes,
                                  const DeviceMemory& memory);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_SLOT_PLAN_H_
