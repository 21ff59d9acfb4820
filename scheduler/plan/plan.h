// How a job's layers are cut into stages, and when such a cut is valid.
//
// A *layer* is a decoder block or the head (the last one).  A *stage* is a
// contiguous run of layers.  Forward stages run in ascending order of layers,
// backward stages in descending order.  A backward stage recomputes its layers
// and backpropagates through them; the *fused* stage, the first of the backward
// ones, runs forward, loss and backward at once and has no forward stage.
//
// A *slot* is one stage in one direction; a plan's slots are numbered in the
// order in which they run.  Backward stages read the inputs that forward slots
// left in host memory.  Where that has no room for all of them, only some are
// kept, and forward slots write the others again (Saving).
//
// Pure values and functions; thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_PLAN_PLAN_H_
#define ROUNDHOUSE_SCHEDULER_PLAN_PLAN_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/limits.h"
#include "base/work_kinds.h"

namespace roundhouse {

// Bounds the planner's work and every range that CheckPlan accepts.
inline constexpr int kMaxPlanLayers = 512;
// So every model that is read can be planned for: decoder layers and the head.
static_assert(kMaxModelLayers + 1 <= kMaxPlanLayers);

// Layers first..last, both included.
struct LayerRange {
  int first = 0;
  int last = -1;

  int layer_count() const { return last - first + 1; }
  bool Contains(int layer) const { return first <= layer && layer <= last; }

  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// Which inputs of the backward stages after the fused one are kept from the
// forward pass.  `every` stages form a group, counted from the last one.  A
// group keeps only the input that it needs last; forward slots write its other
// inputs again before its first backward slot.  The group that runs first keeps
// all of its inputs: at that time they need no more memory than others' do.
struct Saving {
  int every = 1;                // 1: all are kept
  int groups = kMaxPlanLayers;  // counted from the last; those before keep all

  friend bool operator==(const Saving&, const Saving&) = default;
};

struct Plan {
  // In the order in which they run.  Empty when the fused stage is everything.
  std::vector<LayerRange> forward;
  // In the order in which they run.  Empty in a plan for inference.
  std::vector<LayerRange> backward;
  // backward[0] is the fused stage.
  bool fused = false;
  Saving saving;
  // Per slot and part of it: how many groups of a full round it runs; rounds of
  // another size are cut as step_plan.h says.  Empty: every slot is one device
  // wide.
  std::vector<std::vector<int>> split = {};

  int slot_count() const;

  friend bool operator==(const Plan&, const Plan&) = default;
};

// One of a plan's slots.
struct PlanSlot {
  SlotKind kind = SlotKind::kForward;
  LayerRange layers;
  // A forward slot that writes activations again.  It runs no more layers than
  // the longest forward stage.
  bool again = false;
  // Its index in Plan::forward or backward; of one that runs again the index of
  // the backward stage before which it runs.
  int stage = 0;
};

// Inputs that backward stages after the fused one read, and how many of them
// are kept from the forward pass.
struct InputCounts {
  int all = 0;
  int saved = 0;

  friend bool operator==(const InputCounts&, const InputCounts&) = default;
};
InputCounts CountInputs(const Plan& plan);

// Saving::every of a job that was asked for `asked`; 0, it was not: what is
// tried where host memory is short, one after the other.
std::vector<int> SavedEveryTried(int asked);
// The fewest groups with which `fits`, which holds of kMaxPlanLayers.
int FewestGroups(const std::function<bool(int groups)>& fits);

// In the order in which they run.  REQUIRES: the plan's stages are in order.
std::vector<PlanSlot> SlotsOf(const Plan& plan);
// The backward slot that has the layer.  REQUIRES: there is one (checked).
int BackwardSlotWith(const Plan& plan, int layer);

// Every decoder layer a stage in each direction, the head alone the fused one;
// one device wide.
Plan BlockByBlock(int decoder_layers);

// OK when `plan` runs each of `layer_count` layers exactly once per direction:
//   inference   forward covers 0..layer_count-1 ascending, backward is empty
//   training    forward as above, backward covers layer_count-1..0 descending
//   fused       backward as above, forward covers 0..backward[0].first-1
// all without gap, overlap or empty stage, `saving.every` is at least 1,
// and more only in a fused plan, and `split` is empty or gives every slot at
// least one part, every part at least 1.  INVALID_ARGUMENT otherwise, naming
// the stage as the job file's `plan` field does ("plan.backward[1]").  A caller
// that trains also requires that `plan.backward` is not empty.
absl::Status CheckPlan(const Plan& plan, int layer_count);

// "forward [0,3] [4,7] backward fused [8,8] [4,7] [0,3]"; at the end what runs
// again, "again [0,0]".  A slot that is split has its width behind it, "x4", or
// where parts differ what they are, "3+5".
std::string ToString(const Plan& plan);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_PLAN_PLAN_H_
