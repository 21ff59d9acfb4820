// From a dispatcher's action to the command a worker gets: every buffer, word
// and value filled in, so that a worker derives none of them.
//
// Pure functions over the job's state, buffers and the step's data.
#ifndef ROUNDHOUSE_SERVER_STEPS_COMMANDS_H_
#define ROUNDHOUSE_SERVER_STEPS_COMMANDS_H_

#include <cstdint>
#include <set>
#include <vector>

#include "base/wire/messages.h"
#include "scheduler/dispatch/dispatcher.h"
#include "server/dataset/dataset.h"
#include "server/planning/round_buffers.h"
#include "server/weights/training_state.h"

namespace roundhouse {

struct RoundData {
  uint64_t pass = 0;  // what this round's words are raised to
  std::vector<MicroBatch> micro_batches;
  std::vector<uint32_t> groups;  // of each micro-batch
  uint32_t group_count = 0;
  bool filled = false;  // tokens, labels, positions are in the arena
  // Units of the wire whose sums the devices have added up: in slices, in the
  // parts' first blocks.
  std::set<int> sliced;
};

// AdamW's numbers for one optimizer step.
struct UpdateNumbers {
  double learning_rate = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  float gradient_scale = 1;  // the clip factor over the loss scale
  int64_t number = 0;        // of the update, from 1: bias correction
};

// One optimizer step or one evaluation.
struct StepData {
  bool train = true;
  int64_t step = 0;  // optimizer step, from 1; of an evaluation: steps done
  const Dataset* dataset = nullptr;
  std::vector<RoundData> rounds;
  int64_t target_tokens = 0;  // of the whole step
  double loss_scale = 1;      // of its gradients
  int64_t reads_update = 0;   // that left the weights it reads
  uint64_t version = 0;       // of those weights
  uint64_t next_version = 0;  // of the weights it leaves
  wire::Recompute recompute = wire::Recompute::kStage;
  UpdateNumbers update;
};

// A layer's experts are picked once in a round, by the slot that computes it
// first: whoever computes it again, or replays that slot, goes by that.  An
// evaluation computes nothing again.
wire::PickUse PickUseOf(const RunSlotAction& action, const StepData& step,
                        const RoundBuffers& buffers);

// Only the slot's own micro-batches, and one contribution for each largest
// subtree of groups that they are, into the blocks that the action names.
// REQUIRES: the plan of `buffers` is the dispatcher's.
wire::RunSlot SlotCommand(const RunSlotAction& action, const StepData& step,
                          const TrainingState& state,
                          const RoundBuffers& buffers);

// Units of the wire that the slot leaves sums of.
std::vector<int> ContributedUnitsOf(const RunSlotAction& action,
                                    const TrainingState& state);

// The exchange of a unit's sums, for the part that the action is; all but the
// members' ranks, the group and the attempt.  REQUIRES: the slot is a part of a
// wide one, and contributes to the unit.
wire::PeerSums ExchangeCommand(const RunSlotAction& action,
                               const StepData& step, int unit,
                               const TrainingState& state,
                               const RoundBuffers& buffers);

wire::HostOp HostCommand(const RunHostOpAction& action, const StepData& step,
                         const TrainingState& state,
                         const RoundBuffers& buffers);

// Writes a round's tokens, labels and positions into its set of buffers.
void FillRound(const RoundData& round, const Dataset& dataset, int set,
               const RoundBuffers& buffers, const wire::Arena& arena);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STEPS_COMMANDS_H_
