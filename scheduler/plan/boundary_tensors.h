// What crosses between a plan's slots through host memory, who writes and who
// reads it, and how much of it a job needs at a time.
//
// A *tensor* is an activation at a boundary, or the gradient of one, of one
// micro-batch; all of a job take equal *blocks* of host memory.  A slot takes
// blocks for what it writes when it is sent, in the one order in which slots
// are sent, and keeps them when it is sent again; the embedding rows of a round
// take theirs just before its first slot.  A block is free when the slots that
// read it have committed, that of boundary 0's gradient when the embedding is
// reduced.
//
// The invariant: when every slot before one has committed, and earlier rounds'
// embeddings are reduced, that slot's blocks are free.  LeastBoundaryTensors is
// the least number with which it holds.  So a job with as many never waits for
// ever: the oldest slot that has no blocks waits for older ones, which have
// theirs.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_PLAN_BOUNDARY_TENSORS_H_
#define ROUNDHOUSE_SCHEDULER_PLAN_BOUNDARY_TENSORS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/work_kinds.h"
#include "scheduler/plan/plan.h"

namespace roundhouse {

// kAgain: an activation that the round wrote before, and that was not kept.
enum class BoundaryValue { kActivation, kGradient, kAgain };
inline constexpr int kBoundaryValues = 3;

struct BoundaryTensor {
  BoundaryValue value = BoundaryValue::kActivation;
  int boundary = 0;  // the layer whose input it is, or has the gradient of
  int writer = 0;    // slot of the plan; kRowsSlot: the gather
  // The reduction reads boundary 0's gradient, after all slots.
  int readers = 0;
  int last_reader = 0;  // of them the last slot
};
inline constexpr int kRowsSlot = -1;

// The tensors of one micro-batch in a round, by the slots that write them, and
// what each slot reads and writes, as indices of them.  The rows come first.
struct BoundaryMap {
  struct SlotTensors {
    int input = 0;
    std::optional<int> gradient;  // that it is given
    std::vector<int> outputs;     // activations by layer, or a gradient
  };
  std::vector<BoundaryTensor> tensors;
  std::vector<SlotTensors> slots;  // of an evaluation: without backward ones
  std::optional<int> row_gradient;
};

enum class RoundKind { kTrain, kEvaluate };
// Whether anybody reads the gradient of boundary 0: the embedding trains.
enum class RowGradient { kUnread, kRead };

// REQUIRES: CheckPlan is OK, a fused plan.
BoundaryMap MapOf(const Plan& plan, RoundKind round, RowGradient rows);

// Blocks for each of a round's micro-batches; of a plan in training, which
// needs more than evaluation.  REQUIRES: as MapOf.
int64_t LeastBoundaryTensors(const BoundaryMap& map);
int64_t LeastBoundaryTensors(const Plan& plan, RowGradient rows);
// With these `most_sent` parts one after the other can be with devices while
// none of them, nor the last embedding gradient's reduction, has ended; never
// more than what two rounds write.  REQUIRES: as MapOf; most_sent at least 1.
int64_t BoundaryTensors(const Plan& plan, RowGradient rows, int most_sent);

// How far ahead slots are sent at least in a job that is admitted: the running
// one and the next.
inline constexpr int kLeastSlotsAhead = 2;
// BoundaryTensors, or where these are more than `room` as many as there is room
// for; never less than with kLeastSlotsAhead.  What that costs:
// tests/bench/pool_table.cc.  REQUIRES: as BoundaryTensors; most_sent at least
// kLeastSlotsAhead.
int64_t FittingTensors(int64_t room, const Plan& plan, RowGradient rows,
                       int most_sent);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_PLAN_BOUNDARY_TENSORS_H_
