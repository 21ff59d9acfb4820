// What the Dispatcher asks its caller to do (dispatcher.h).  Plain values.
#ifndef ROUNDHOUSE_SCHEDULER_DISPATCH_ACTIONS_H_
#define ROUNDHOUSE_SCHEDULER_DISPATCH_ACTIONS_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/reduction.h"
#include "base/work_kinds.h"
#include "scheduler/plan/boundary_tensors.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/step_plan.h"

namespace roundhouse {

struct SlotPlace {
  uint64_t step_number = 0;  // of BeginStep calls, from 0
  int round = 0;             // of the step
  int buffer_set = 0;        // 0 or 1
  int index = 0;             // of the round's slots, each part being one
};

// Where a part's activations and gradients between stages lie: blocks of the
// job's pool (scheduler/dispatch/boundary_pool.h), one for each of its
// micro-batches in order.
struct SlotBoundaries {
  struct Output {
    BoundaryValue value = BoundaryValue::kActivation;
    int boundary = 0;
    std::vector<int> blocks;
  };
  BoundaryValue input = BoundaryValue::kActivation;  // or kAgain
  std::vector<int> inputs;
  std::vector<int> gradients;   // that a backward slot is given; else empty
  std::vector<Output> outputs;  // by boundary
};

// Run this slot: a part of the plan's, with its share of the round's
// micro-batches.  Sent again with the same id when its worker died.
struct RunSlotAction {
  JobId job{};
  SlotId slot{};
  DeviceId device{};
  SlotPlace place;
  SlotKind kind = SlotKind::kForward;
  LayerRange layers;
  IndexRange micro_batches;  // of the round
  // When slots of several jobs are ready, the device takes the one with the
  // lowest turn (base/turns.h).
  uint64_t turn = 0;
  // Units (JobShape::head_share() among them) whose contribution an earlier
  // attempt left (ContributionDown): they may be under reduction, and are not
  // to be written again.
  std::vector<int> units_down = {};
  // Where its sums go: for each trained layer in turn as many blocks as it
  // sends sums of one (scheduler/plan/contribution_blocks.h), of the head's
  // blocks for the head.  The same when it is sent again; those of units_down
  // may be another slot's by then.
  std::vector<int> blocks = {};
  // The same when it is sent again; those of outputs whose words are raised may
  // be another slot's by then.
  SlotBoundaries boundaries = {};
};

struct WithdrawSlotAction {
  JobId job{};
  SlotId slot{};
  DeviceId device{};
};

// When the device is to take a slot that it has: it was sent with another turn.
struct SetTurnAction {
  JobId job{};
  SlotId slot{};
  DeviceId device{};
  uint64_t turn = 0;
};

struct RunHostOpAction {
  JobId job{};
  HostOpId op{};
  HostOpKind kind = HostOpKind::kGather;
  uint64_t step_number = 0;
  int round = 0;
  int buffer_set = 0;
  int unit = 0;
  // reduce of unit 0: the gradients of its rows are added, all that there are
  // beside contributions.  One of a tied embedding has either or both.
  bool rows = false;
  bool add_to_sum = false;  // reduce: not the first one of the unit's step
  bool last_round = false;  // reduce: the sum is final
  // reduce: where the sums are that came down, in the order of their groups.
  // update: the same, of a unit that is reduced and updated in one pass.
  std::vector<int> blocks = {};
  // gather: where the rows go; reduce of rows: where their gradients are.  One
  // for each of the round's micro-batches.
  std::vector<int> row_blocks = {};

  // A reduction, or a pass that is one, too.
  bool reduces() const {
    return kind == HostOpKind::kReduce ||
           (kind == HostOpKind::kUpdate && !blocks.empty());
  }
};

// Every slot committed, every reduction done: with clipping the norm can be
// computed now, and the next step may begin.  Before the first update of a
// clipped step the caller must call AllowUpdates, or SkipUpdates for none.
struct StepReducedAction {
  JobId job{};
  uint64_t step_number = 0;
};

// Every update is done (an evaluation: every slot committed).
struct StepDoneAction {
  JobId job{};
  uint64_t step_number = 0;
};

// Abandon is complete: no slot and no host operation is out.
struct QuietAction {
  JobId job{};
};

// What becomes of slots that devices compute when their job's are held.
enum class StartedSlots {
  kWithdrawn,
  kEnd,  // but for those that come after one which did not start
};

using Action = std::variant<RunSlotAction, WithdrawSlotAction, SetTurnAction,
                            RunHostOpAction, StepReducedAction, StepDoneAction,
                            QuietAction>;

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_DISPATCH_ACTIONS_H_
