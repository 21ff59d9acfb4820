// The steps of one job as slots and host operations, and what may be sent next.
// Part of the Dispatcher, whose header says what it decides.
//
// What a step is made of, in terms of units (base/model/parameters.h):
//
//   gather(round)       embedding rows into stage 0's inputs
//   slots of the round  forward stages, fused, backward stages
//   reduce(unit, round) when every part contributing to the unit committed; of
//                       a tied embedding the head's share by itself if that is
//                       there before, so that its rows are all that is left
//   update(unit)        when its last reduction is done and, with clipping,
//                       every unit's is; unit 0 first, so that the next step's
//                       gather and first stages start under later updates
//
// Where JobShape::one_pass, units but the embedding's are reduced as they are
// updated, once every slot that reads their weights has committed.
//
// Units that do not train (JobShape::trainable) are neither reduced nor
// updated, and nothing waits for them.
//
// A round uses one of two sets of words and tokens, by its running number's
// parity: it starts when the round before the last has *retired*, i.e. its
// slots committed and its reductions are done.  A slot is sent when there are
// blocks for its sums (StepSpec::blocks) and for the activations and gradients
// that it writes (StepSpec::boundary_blocks); it keeps them when it is sent
// again.  A gather takes its blocks when every slot before its round has its
// own.  Slots are sent in order, and no slot needs more blocks than there are,
// so whoever has some waits for nobody that waits for them.  Reductions of a
// unit go out in round order.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_DISPATCH_JOB_STEPS_H_
#define ROUNDHOUSE_SCHEDULER_DISPATCH_JOB_STEPS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "scheduler/dispatch/actions.h"
#include "scheduler/dispatch/boundary_pool.h"
#include "scheduler/dispatch/sent_work.h"
#include "scheduler/dispatch/step_spec.h"
#include "scheduler/plan/boundary_tensors.h"
#include "scheduler/plan/plan.h"

namespace roundhouse {

class JobSteps {
 public:
  // `sent` and `actions` outlive it.
  JobSteps(JobId job, const JobShape& shape, SentWork& sent,
           std::vector<Action>& actions);

  // --- of the job (Dispatcher's functions of these names)
  uint64_t BeginStep(const StepSpec& spec);
  uint64_t next_step_number() const { return next_step_; }
  void AllowUpdates(uint64_t step_number);
  void SkipUpdates(uint64_t step_number);
  void HoldUpdatesAfter(std::optional<uint64_t> step_number);
  void HoldSlots(StartedSlots started);
  void ReleaseSlots();
  void WithdrawBackfill();  // and what comes after: to be sent again
  void Abandon();
  bool Updating() const;
  bool Idle() const { return steps_.empty(); }

  // --- of its slots; nothing, and no effect: it is not one of this job's that
  // is out
  bool SlotStarted(SlotId slot);  // its device computes it
  std::optional<SlotCost> SlotDone(SlotId slot, int64_t compute_ns);
  bool SlotWithdrawn(SlotId slot);
  bool ContributionDown(SlotId slot, int unit);

  // --- of the workers
  void SendAgain(SlotId slot);               // its device is up again
  void SetTurn(SlotId slot, uint64_t turn);  // its device is told
  void WorkerDied(SlotId slot);              // it will come back
  // The device gets none of its slots any more.  Those that it has are placed
  // anew but for those that it computes, and with them all that come later.
  void Vacate(DeviceId device);
  void HostOpDone(const RunHostOpAction& action);

  // --- deciding
  // Ends rounds, steps and an abandonment that can end.
  void Settle();
  // The next slot in order, where it may be sent now.
  std::optional<SentWork::SentSlot> NextSlot() const;
  // REQUIRES: NextSlot() is this slot.
  void Send(const SentWork::SentSlot& slot, DeviceId device);
  // Sends one operation, if one may be sent now.
  bool SendHostOp();

 private:
  struct Slot {
    SlotId id{};
    SlotId first_part{};  // of the plan's slot
    bool wide = false;    // that has several
    SlotPlace place;
    int plan_slot = 0;
    SlotKind kind = SlotKind::kForward;
    LayerRange layers;
    IndexRange micro_batches;
    uint64_t round_number = 0;
    SlotCost cost;
    int64_t device_bytes = 0;
    uint64_t turn = 0;
    int64_t sums = 0;         // that it sends of each of its layers
    std::vector<int> units;   // that it contributes to, or head_share()
    bool has_blocks = false;  // of both kinds: it was sent
    std::vector<int> blocks;  // of its sums
    std::vector<int> down;    // of those: they have its contribution
    enum class State { kWaiting, kOut, kLostWorker, kWithdrawing, kCommitted };
    State state = State::kWaiting;
    bool started = false;  // its device computes it
    DeviceId device{};
  };
  struct Round {
    uint64_t number = 0;  // over all steps; its parity picks the buffer set
    uint64_t step_number = 0;
    int index = 0;
    int slots_left = 0;
    bool gather_sent = false;
    int slots_without_blocks = 0;
    RoundBoundaries boundaries;
    // Per unit, and of head_share().
    std::vector<int> contributors_left;  // slots not yet down
    std::vector<int> readers_left;       // slots not yet committed
    std::vector<bool> reduce_sent;
    std::vector<bool> reduce_done;
    int reduces_left = 0;
    // Per layer: of sums not reduced, in the order of their groups, in which
    // parts may not have been sent.
    struct Block {
      int64_t micro_batch = 0;  // the first of the part that sends it
      int block = 0;
    };
    std::vector<std::vector<Block>> blocks;
    bool retired() const { return slots_left == 0 && reduces_left == 0; }
  };
  struct Step {
    uint64_t number = 0;
    StepSpec spec;
    std::shared_ptr<const BoundaryMap> boundaries;
    int rounds_left = 0;
    bool reduced = false;
    bool updates_allowed = false;
    bool skips_updates = false;
    std::vector<bool> update_sent;  // per unit
    std::set<int> updatable;        // units reduced for good, not updated
    int updates_left = 0;
  };

  // For the layer's sums.
  BlockPool& PoolOfLayer(int layer) {
    return layer == shape_.layer_count - 1 ? head_blocks_ : layer_blocks_;
  }
  // What the slot's sums need of `of`.
  int64_t BlocksNeeded(const Slot& slot, const BlockPool& of) const;
  // What it takes of the pool, and the rows of its round with the first one.
  int64_t BoundariesNeeded(const Slot& slot) const;
  void TakeBlocks(Slot& slot);
  void TakeBlocksOfSums(Slot& slot);
  void FreeBlocks(Round& round, int layer);
  int LayerOf(int unit) const;
  std::vector<int> BlocksOfUnit(const Round& round, int unit) const;
  // It is reduced.
  void FreeBlocksOfUnit(Round& round, int unit);

  void AddRound(const Step& step, int index);
  void AddSlots(const Step& step, Round& round);
  std::vector<int> UnitsOf(const Slot& slot) const;
  static SlotCost CostOf(const StepSpec& spec, const Slot& slot);
  Slot* Find(SlotId slot);
  const Round& RoundOf(const Slot& slot) const;
  Round& RoundOf(const Slot& slot) {
    return const_cast<Round&>(std::as_const(*this).RoundOf(slot));
  }
  void SetState(Slot& slot, Slot::State state);

  bool MaySend(const Slot& slot) const;
  void Emit(Slot& slot);
  bool SendGather();
  bool SendUpdate();
  bool SendReduce();
  bool MayReduce(const Round& round, int unit) const;
  void SendReduce(Round& round, int unit);
  void SetReduced(Round& round, int unit);
  bool GatherWaits(const Round& round) const;
  bool MayTakeRows(const Round& round) const;
  bool EarlierReduceWaits(const Round& round, int sum) const;
  bool SumIsNeeded(const Round& round, int sum) const;
  std::vector<int> SumsOf(const RunHostOpAction& action) const;
  bool MayUpdate(const Step& step, int unit) const;
  // By HoldUpdatesAfter.
  bool Held(const Step& step) const {
    return held_after_.has_value() && step.number > *held_after_;
  }
  void Emit(RunHostOpAction action);
  void FinishRounds();
  void FinishSteps();
  // It waits to be placed anew.
  void Unplace(SlotId slot);
  // Asks for those that are out, from the last one to `first`.
  void WithdrawFrom(SlotId first);
  SlotId FirstSlotOf(uint64_t step_number) const;
  SlotId FirstNotStarted() const;
  void DropNewestStep();
  void FinishAbandoning();
  // An abandoned step, or one after it.
  bool IsAbandoned(uint64_t step_number) const {
    return abandoned_step_.has_value() && step_number >= *abandoned_step_;
  }
  std::deque<Step>::const_iterator FirstToAbandon() const;
  bool AbandonedAreOut() const;
  void CommitToRound(Slot& slot);
  void NoteContribution(Slot& slot, int unit);
  Step* FindStep(uint64_t number);

  const JobId job_;
  const JobShape shape_;
  SentWork& sent_;
  std::vector<Action>& actions_;
  // Unfinished, oldest first; at most two, with a stale shape four.
  std::deque<Step> steps_;
  std::deque<Round> rounds_;      // not retired, oldest first
  std::map<SlotId, Slot> slots_;  // of rounds in rounds_, in global order
  SlotId first_waiting_{};        // none before it waits to be sent
  int withdrawing_ = 0;           // slots
  BlockPool layer_blocks_;        // for sums of decoder layers
  BlockPool head_blocks_;         // for the head's
  BlockPool boundary_blocks_;
  // Round and unit, or head_share(): contributions are down, the reduction is
  // not sent.  None of units reduced as they are updated.
  std::set<std::pair<uint64_t, int>> reducible_;
  uint64_t next_round_ = 0;
  uint64_t next_step_ = 0;
  std::optional<uint64_t> held_after_;
  bool slots_held_ = false;
  bool abandoning_ = false;
  // And those after it, until they are dropped.
  std::optional<uint64_t> abandoned_step_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_DISPATCH_JOB_STEPS_H_
