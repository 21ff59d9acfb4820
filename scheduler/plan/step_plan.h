// What a round of a step does, with widths: the stages, and which micro-batches
// of a stage each of its parts runs.
//
// A slot (scheduler/plan/plan.h) of width w
// has w *parts*, each on a device of its own with a contiguous share of the
// micro-batches.  Shares end where groups end (base/reduction.h), so that every
// plan adds gradients in the same order; a part sends one sum for each largest
// subtree of groups that it covers.
//
// A job's Plan::split says how its slots are cut in a full round; a StepPlan is
// of one size of round.  Rounds of all sizes are cut by one rule (GroupShares):
// in proportion to `split`, whole groups first, what is left to the largest
// remainders, of equals to the first part; parts for which a short round has no
// group are left out.  Where that would make more sums than the full round has
// (halves of 6 groups are no subtrees, halves of 8 are), a short round is cut
// at nodes of the tree instead, one for each part: buffers for the full round
// hold the sums of every round.
//
// Pure values and functions; thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_PLAN_STEP_PLAN_H_
#define ROUNDHOUSE_SCHEDULER_PLAN_STEP_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/reduction.h"
#include "base/work_kinds.h"
#include "scheduler/plan/plan.h"

namespace roundhouse {

struct StepPlan {
  Plan stages;     // fused, over L + 1 layers
  int groups = 1;  // G: of the round's micro-batches
  // Parts whose weights go to a device while another one runs there.
  int look_ahead = 1;
  // Per slot, per part: micro-batches of the round, in order, together all.
  std::vector<std::vector<IndexRange>> shares;

  int slot_count() const { return stages.slot_count(); }

  friend bool operator==(const StepPlan&, const StepPlan&) = default;
};

// One width per direction.
struct Widths {
  int forward = 1;  // also of slots that run again
  int fused = 1;
  int backward = 1;

  friend bool operator==(const Widths&, const Widths&) = default;
};

struct Part {
  int slot = 0;
  SlotKind kind = SlotKind::kForward;
  bool again = false;  // PlanSlot's
  LayerRange layers;
  IndexRange micro_batches;
  int64_t groups = 0;         // that it covers
  int64_t contributions = 0;  // sums that it sends per layer; 0 when forward

  bool backward() const { return kind != SlotKind::kForward; }
  PassDirection direction() const {
    return again        ? PassDirection::kAgain
           : backward() ? PassDirection::kBackward
                        : PassDirection::kForward;
  }
};

// `groups` in proportion to the entries, as GroupShares cuts a full round: what
// Plan::split is made of.  Entries that get none are left out.
// REQUIRES: groups >= 1, at least one entry, all at least 1.
std::vector<int> SplitOf(const std::vector<int>& proportions, int groups);

// Which of a round's `groups` each part of the slot runs, ascending, together
// all.  REQUIRES: CheckPlan is OK, the slot exists, groups >= 1.
std::vector<IndexRange> GroupShares(const Plan& plan, int slot, int64_t groups);

// The plan of a round of `micro_batches` in at most `groups` groups, cut as
// GroupShares says.  REQUIRES: CheckPlan is OK, a fused plan, both at least 1.
StepPlan PlanOfRound(const Plan& plan, int micro_batches, int groups);

// The plan whose full round, of `micro_batches`, is cut like this one: what
// PlanOfRound undoes.  REQUIRES: CheckStepPlan is OK.
Plan PlanOfFullRound(const StepPlan& plan, int micro_batches);

// The groups of each sum that comes down for a trained unit of `layer` in a
// round of `groups` groups, ascending, together all: the largest subtrees of
// the parts of the backward slot that has the layer.
// REQUIRES: as GroupShares; the layer exists.
std::vector<IndexRange> ContributedGroups(const Plan& plan, int layer,
                                          int64_t groups);

// Sums per unit of all parts of the slot together in a full round: no shorter
// one has more.  And the most that a single part has in any of them.
int64_t MostContributions(const Plan& plan, int slot);
int64_t MostContributionsOfAPart(const Plan& plan, int slot);

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

// The micro-batches of `parts` contiguous runs of whole groups, of as many each
// as can be, the larger runs first: UniformPlan's shares.
// REQUIRES: parts at least 1 and at most the groups.
std::vector<IndexRange> UniformShares(const std::vector<IndexRange>& groups,
                                      int parts);

// The same in proportion to `speeds`, largest first: ProportionalPlan's shares.
// REQUIRES: at least one, all above 0.
std::vector<IndexRange> ProportionalShares(
    const std::vector<IndexRange>& groups, const std::vector<double>& speeds);

// The micro-batches of `parts` contiguous runs of whole groups, as equal as can
// be (least sum of squares; of equals the larger ones first).  Where groups
// differ in size UniformPlan's shares may be less equal: as many groups are not
// as many micro-batches.
// REQUIRES: parts at least 1 and at most the groups.
std::vector<IndexRange> EvenShares(const std::vector<IndexRange>& groups,
                                   int parts);

// INVALID_ARGUMENT naming slot and part: stages that CheckPlan refuses, not
// fused; no look-ahead; shares that are empty, leave out or repeat a
// micro-batch, or end inside a group; more parts than devices.
absl::Status CheckStepPlan(const StepPlan& plan, int layer_count,
                           int micro_batches, int device_count);

// The indices of a slot's shares in the order in which their parts are sent:
// those of more micro-batches first, of equals the first share.  So the next
// slot's largest part goes to a device that had a small one.
std::vector<size_t> SendOrder(const std::vector<IndexRange>& shares);

// In the order in which they are sent: slot after slot, of a slot in SendOrder.
// REQUIRES: CheckStepPlan is OK (whatever the number of devices).
std::vector<Part> PartsOf(const StepPlan& plan, int micro_batches);

// "forward [0,3] x8 ... fused [28,28] x8 backward [24,27] x4"; at the end what
// runs again, "again [0,2] x8".
std::string ToString(const StepPlan& plan);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_PLAN_STEP_PLAN_H_
