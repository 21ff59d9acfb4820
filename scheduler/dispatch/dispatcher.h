// The one place that decides what every device and the host worker do next: a
// pure state machine over the slots of a job's steps.
//
//   events in   BeginStep, SlotDone, HostOpDone, DeviceUp, DeviceDown,
//               DeviceLost, HostUp, HostDown, SlotWithdrawn, Abandon
//   actions out RunSlot, WithdrawSlot, RunHostOp, StepReduced, StepDone, Quiet
//
// The caller (server/jobs/runner, later scheduler/simulate) hands in events in
// the order they happened and carries out TakeActions() in order.  No threads,
// clocks, files or offsets in here: buffers and words belong to the caller.
// Thread-compatible.
//
// Schedule (RoundPipe, arXiv 2604.27085, section "round-robin dispatch", with
// widths): a slot of the plan that is w devices wide is w slots here, its
// *parts*, each with an id and a share of the round's micro-batches of its own
// (PlanOfRound in scheduler/plan/step_plan.h cuts every round, also a shorter
// last one and those of evaluations).  The parts of all rounds form one global
// order, the plan's slots in order and each one's parts in order, in which
// producers precede consumers; number p goes to live device p mod N, where p
// counts on over rounds and steps, so the next step starts on the device that
// frees first.  The parts of one slot lie on devices of their own where there
// are as many; where devices were lost they share.
// Every device takes its slots in that order and holds at most
// `max_dispatched_slots` (running and prefetched).  Slots are sent before their
// inputs exist: workers wait on words (base/wire/words.h).  This cannot
// deadlock while no device is lost for good, at any width and any number of
// devices, because the earliest unfinished slot is the first of its device and
// all that it reads comes from slots before it.  One that must wait for a
// reduction holds back those after it; what is reduced comes before it too.
//
// What a step is made of, in terms of units (base/model/parameters.h):
//
//   gather(round)       embedding rows into stage 0's inputs
//   slots of the round  forward stages, fused, backward stages
//   reduce(unit, round) when every part contributing to the unit committed
//   update(unit)        when its last reduction is done and, with clipping,
//                       every unit's is; unit 0 first, so that the next step's
//                       gather and first stages start under later updates
//
// Units that do not train (JobShape::trainable) are neither reduced nor
// updated, and nothing waits for them.
//
// A round uses one of two sets of activation buffers, by its running number's
// parity: it starts when the round before the last has *retired*, i.e. its
// slots committed and its reductions are done.  Where contribution buffers
// exist once, a backward slot is sent when the previous round's reductions of
// its units are done; where there are two sets, two rounds' backward slots of
// one unit can run at a time, as a plan of one stage needs for its rounds to
// run on several devices at once.  Reductions of a unit go out in round order.
//
// Losses.  DeviceDown: its slots wait for the device to come back (DeviceUp
// sends them again, in order).  DeviceLost: every dispatched slot is withdrawn
// in reverse order and all unfinished slots are placed anew over the devices
// that are left.  HostDown/HostUp: unfinished host operations go out again in
// order.  Bits never depend on any of it.
#ifndef ROUNDHOUSE_SCHEDULER_DISPATCH_DISPATCHER_H_
#define ROUNDHOUSE_SCHEDULER_DISPATCH_DISPATCHER_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "scheduler/dispatch/actions.h"
#include "scheduler/plan/plan.h"

namespace roundhouse {

// What the dispatcher must know of a job's model.
struct JobShape {
  int layer_count = 0;     // layers of plans: decoder layers and the head
  int unit_count = 0;      // unit 0 is the embedding, 1 + l is layer l's
  bool tied_head = false;  // the head also contributes to unit 0
  // Per unit: whether a step leaves a gradient of it to reduce and update.
  // With adapters unit 1 + l stands for those of layer l, and neither the
  // embedding nor the head has any.  Empty: every unit.  REQUIRES: at least
  // one.
  std::vector<bool> trainable;
  int contribution_sets = 1;  // 1, or 2: chosen by the round's buffer_set

  bool Trains(int unit) const { return trainable.empty() || trainable[unit]; }
  int trainable_count() const {
    if (trainable.empty()) return unit_count;
    return static_cast<int>(
        std::count(trainable.begin(), trainable.end(), true));
  }
};

struct StepSpec {
  uint64_t step = 0;  // of an evaluation: the step after which it runs
  bool train = true;  // false: forward and loss only, nothing reduced
  bool clip = false;  // updates wait for every reduction
  Plan plan;
  int groups = 1;  // G: each round's micro-batches form at most as many
  std::vector<int> round_micro_batches;  // micro-batches of each round
};

struct DispatcherOptions {
  int max_dispatched_slots = 2;  // per device: running and prefetched
  int max_host_ops = 4;          // sent and not yet done
};

class Dispatcher {
 public:
  Dispatcher(const JobShape& shape, const DispatcherOptions& options);

  // Appends a step.  Returns its number.
  // REQUIRES: at most one step unfinished, and that one reduced; the plan is
  // valid for the shape (CheckPlan), fused when training; not abandoning.
  uint64_t BeginStep(const StepSpec& spec);
  // What the next BeginStep will return.
  uint64_t next_step_number() const { return next_step_; }

  // Lets the updates of a clipped step go out, once the caller has the factor.
  // REQUIRES: StepReducedAction was taken for it.
  void AllowUpdates(uint64_t step_number);

  // Holds the updates of steps after `step_number`, until called with nullopt:
  // a save reads the units as that step leaves them.  To be called before that
  // step is reduced.
  void HoldUpdatesAfter(std::optional<uint64_t> step_number);

  // A device can take slots; its earlier ones, if any, are sent again.
  void DeviceUp(DeviceId device);
  // Its worker died; nothing it had is committed any more.  It will come back.
  void DeviceDown(DeviceId device);
  // It will not come back.  REQUIRES: down.  No effect on a device that has
  // never been up.
  void DeviceLost(DeviceId device);

  // The daemon has accepted the slot's result.  Ignored for a slot that is not
  // out or has committed before.
  void SlotDone(SlotId slot);
  // The answer to a withdrawal: nothing of it will be written any more.
  void SlotWithdrawn(SlotId slot);

  void HostUp();
  void HostDown();
  void HostOpDone(HostOpId op);

  // Gives up the newest step: withdraws its slots, waits for its host
  // operations, then answers with QuietAction.  While Updating() it leaves the
  // weights torn, some of them updated: only for a job that drops them.
  // An older step that is updating goes on to its end first.
  // With no step unfinished it answers at once.
  void Abandon();

  // True when the newest unfinished step has begun to update, or waits only for
  // a hold to end (HoldUpdatesAfter).
  bool Updating() const;

  std::vector<Action> TakeActions();

  bool IsCommitted(SlotId slot) const;
  // No step is unfinished.
  bool Idle() const { return steps_.empty(); }
  int live_device_count() const { return static_cast<int>(ring_.size()); }

 private:
  struct Slot {
    SlotId id{};
    SlotPlace place;
    SlotPass pass = SlotPass::kForward;
    LayerRange layers;
    IndexRange micro_batches;
    uint64_t round_number = 0;
    enum class State { kWaiting, kOut, kLostWorker, kWithdrawing, kCommitted };
    State state = State::kWaiting;
    DeviceId device{};
  };
  struct Round {
    uint64_t number = 0;  // over all steps; its parity picks the buffer set
    uint64_t step_number = 0;
    int index = 0;
    int slots_left = 0;
    bool gather_sent = false;
    std::vector<int> contributors_left;  // per unit: slots
    std::vector<bool> reduce_sent;       // per unit
    std::vector<bool> reduce_done;       // per unit
    int reduces_left = 0;
    bool retired() const { return slots_left == 0 && reduces_left == 0; }
  };
  struct Step {
    uint64_t number = 0;
    StepSpec spec;
    int rounds_left = 0;
    bool reduced = false;
    bool updates_allowed = false;
    std::vector<bool> update_sent;  // per unit
    int updates_left = 0;
  };
  struct SentHostOp {
    RunHostOpAction action;
    bool out = false;  // false: the worker died, to be sent again
  };
  struct Device {
    bool up = false;
    std::vector<SlotId> out;  // in the order sent
  };

  void AddRound(const Step& step, int index);
  void AddSlots(const Step& step, Round& round);
  std::vector<int> UnitsOf(const Slot& slot) const;

  void Pump();
  void SendSlots();
  bool MaySend(const Slot& slot) const;
  void Send(Slot& slot, DeviceId device);
  void SendHostOps();
  bool SendNextHostOp();
  bool SendGather();
  bool SendUpdate();
  bool SendReduce();
  bool EarlierReduceWaits(const Round& round, int unit) const;
  void SendHostOp(RunHostOpAction action);
  void FinishRounds();
  void FinishSteps();
  void WithdrawOut(uint64_t first_step_number);
  void AfterWithdrawal(Slot& slot);
  void DropNewestStep();
  void FinishAbandoning();
  bool StepIsOut(uint64_t number) const;
  void CommitToRound(const Slot& slot);

  Step* FindStep(uint64_t number);
  bool AnyWithdrawing() const;
  void Forget(DeviceId device, SlotId slot);

  const JobShape shape_;
  const DispatcherOptions options_;
  std::deque<Step> steps_;        // unfinished, oldest first; at most two
  std::deque<Round> rounds_;      // not retired, oldest first
  std::map<SlotId, Slot> slots_;  // of rounds in rounds_, in global order
  std::map<DeviceId, Device> devices_;
  std::vector<DeviceId> ring_;  // devices slots are placed on, ascending
  uint64_t next_position_ = 0;
  uint64_t next_slot_ = 1;
  uint64_t next_round_ = 0;
  uint64_t next_step_ = 0;
  uint64_t next_host_op_ = 1;
  std::deque<SentHostOp> host_ops_;  // sent and not done, in order
  bool host_up_ = false;
  std::optional<uint64_t> held_after_;
  bool abandoning_ = false;
  std::optional<uint64_t> abandoned_step_;  // until it is dropped
  std::vector<Action> actions_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_DISPATCH_DISPATCHER_H_
