// What a round of a step does, with widths: the stages, and which micro-batches
// of a stage each of its parts runs.
//
// A *slot* is one stage in one direction; slots are numbered in the order in
// which they run: forward stages, fused, backward stages.  A slot of width w
// has w *parts*, each on a device of its own with a contiguous share of the
// micro-batches.  Shares end where groups end (base/reduction.h), so that every
// plan adds gradients in the same order; a part sends one sum for each largest
// subtree of groups that it covers.
//
// Pure values and functions; thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_PLAN_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/reduction.h"
#include "scheduler/dispatch/dispatcher.h"
#include "scheduler/plan/plan.h"
#include "scheduler/simulate/model_costs.h"

namespace roundhouse {

struct StepPlan {
  Plan stages;     // fused, over L + 1 layers
  int groups = 1;  // G: of the round's micro-batches
  // Parts whose weights go to a device while another one runs there.
  int look_ahead = 1;
  // Per slot, per part: micro-batches of the round, in order, together all.
  std::vector<std::vector<IndexRange>> shares;

  int slot_count() const {
    return static_cast<int>(stages.forward.size() + stages.backward.size());
  }
};

// One width per direction.
struct Widths {
  int forward = 1;
  int fused = 1;
  int backward = 1;

  friend bool operator==(const Widths&, const Widths&) = default;
};

struct Part {
  int slot = 0;
  SlotPass pass = SlotPass::kForward;
  LayerRange layers;
  IndexRange micro_batches;
  int64_t groups = 0;         // that it covers
  int64_t contributions = 0;  // sums that it sends per layer; 0 when forward

  bool backward() const { return pass != SlotPass::kForward; }
};

// Every slot at its direction's width, shares as equal as the groups allow, the
// larger ones first.  A slot gets at most as many parts as groups.
// REQUIRES: widths at least 1.
StepPlan UniformPlan(const Plan& stages, const Widths& widths,
                     int micro_batches, int groups);

// The same with shares in proportion to the speeds of as many of the fastest
// devices as the slot is wide.  A device that is too slow for a group gets
// none. REQUIRES: `speeds` has as many entries as the greatest width.
StepPlan ProportionalPlan(const Plan& stages, const Widths& widths,
                          int micro_batches, int groups,
                          std::vector<double> speeds);

// INVALID_ARGUMENT naming slot and part: stages that CheckPlan refuses, not
// fused; no look-ahead; shares that are empty, leave out or repeat a
// micro-batch, or end inside a group; more parts than devices.
absl::Status CheckStepPlan(const StepPlan& plan, int layer_count,
                           int micro_batches, int device_count);

// In the order of slots, then shares.  REQUIRES: CheckStepPlan is OK.
std::vector<Part> PartsOf(const StepPlan& plan, int micro_batches);

// Compute of a part at speed 1.
int64_t PartNs(const Part& part, const ModelCosts& costs);

// "forward [0,3] x8 ... fused [28,28] x8 backward [24,27] x4".
std::string ToString(const StepPlan& plan);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_PLAN_H_
