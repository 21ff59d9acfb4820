// The one place that decides what every device and the host worker do next: a
// pure state machine over the slots of all running jobs.
//
//   events in   AddJob, BeginStep, SlotDone, ContributionDown, HostOpDone,
//               DeviceUp, DeviceDown, DeviceLost, DeviceLeaves, HostUp,
//               HostDown, SlotWithdrawn, Abandon
//   actions out RunSlot, WithdrawSlot, SetTurn, RunHostOp, StepReduced,
//               StepDone, Quiet
//
// The caller (server/steps/dispatch_loop; scheduler/simulate/dispatcher_feed in
// virtual time) hands in events in the order they happened and carries out
// TakeActions() in order.  No threads, clocks, files
// or offsets in here: buffers and words belong to the caller.
// Thread-compatible.
//
// Schedule (RoundPipe, arXiv 2604.27085, section "round-robin dispatch", with
// widths and several jobs): a slot of a job's plan that is w devices wide is w
// slots here, its *parts*, each with an id and a share of the round's
// micro-batches of its own (PlanOfRound in scheduler/plan/step_plan.h cuts
// every round, also a shorter last one and those of evaluations).  The parts of
// all of a job's rounds form one order, the plan's slots in order and each
// one's parts in order, in which producers precede consumers.  A job's next
// part goes to the device that would end it first if none ever waited
// (SentWork::Place), and waits for that one while it is full: with equal parts
// and devices and one job that is RoundPipe's ring.  What a part takes is the
// job's measured times, before there are any a guess by layers and what slots
// of that guess took; a device's speed is what the caller says, corrected by
// what its slots took.
//
// Between jobs: projects share device time by weight, users those of their
// project, jobs those of their user (scheduler/share/fair_shares.h).  Of the
// jobs whose next part can be sent the one whose turn it is goes first, and a
// device is told to compute what it has in that order.  So each gets its share
// where all have work, and all of it where the others wait.
// Urgent jobs go before all others, and a device takes slots of theirs beyond
// those that it has: the next one that it computes is one of theirs, if what it
// reads is there.  Backfill jobs come after all others.  Each class shares
// likewise; what backfill jobs have on a device does not count when slots of
// others are placed, and takes none of their room.  Workers compute such a slot
// only while no other can go on, and give the device back a layer later at most
// (worker/board/compute_turns.h).  So it may be under way for long, and is
// withdrawn as one that did not start.
//
// Slots are sent before their inputs exist: workers wait on words
// (base/wire/words.h), and begin a slot of one job before an older one of
// another that waits only when everything that it reads is there
// (worker/board/slot_table.h).  This cannot deadlock while no device is lost
// for good, at any width and any number of devices and jobs: all devices have
// their slots in the one order in which they were sent, producers first, and a
// slot that overtakes waits for nobody.  So the earliest unfinished slot is the
// first of its device, and all that it reads comes from slots before it.
//
// Losses.  DeviceDown: its slots wait for the device to come back (DeviceUp
// sends them again, in order).  DeviceLost: its slots are placed anew over the
// devices that are left, and so are all later ones of their jobs, wherever they
// are: those are withdrawn, the last one first.  DeviceLeaves: the same of what
// the device does not compute yet.  HostDown/HostUp: unfinished host operations
// go out again in order.  Bits never depend on any of it.
#ifndef ROUNDHOUSE_SCHEDULER_DISPATCH_DISPATCHER_H_
#define ROUNDHOUSE_SCHEDULER_DISPATCH_DISPATCHER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "scheduler/dispatch/actions.h"
#include "scheduler/dispatch/job_steps.h"
#include "scheduler/dispatch/sent_work.h"
#include "scheduler/share/fair_shares.h"

namespace roundhouse {

// Device time that somebody is charged with.
struct DeviceCharge {
  JobOwner owner;
  std::optional<JobId> job;  // none: it was for no job, as a user's sample is
  int64_t device_ns = 0;
};

class Dispatcher {
 public:
  explicit Dispatcher(const DispatcherOptions& options);
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // --- jobs; the others REQUIRE: added
  void AddJob(JobId job, const JobShape& shape, const JobOwner& owner = {},
              Priority priority = Priority::kNormal);
  // Its next slots go as those of that class.  Slots that devices have go with
  // them, behind others of it, where it goes before the class that they had;
  // backfill slots are withdrawn for that, and sent again.
  void SetPriority(JobId job, Priority priority);
  // What it has with the host worker is forgotten, and its answer ignored.
  // REQUIRES: no slot of it is out.
  void RemoveJob(JobId job);

  // Appends a step: its slots are sent ahead like those of another round, and
  // what they read of the step before (updates, rows) they wait for.  Returns
  // its number.
  // REQUIRES: at most one step unfinished (JobShape::stale: three); the plan is
  // valid for the shape (CheckPlan), fused when training; not abandoning.
  uint64_t BeginStep(JobId job, const StepSpec& spec);
  // What the job's next BeginStep will return.
  uint64_t NextStepNumber(JobId job) const;

  // Lets the updates of a clipped step go out, once the caller has the factor.
  // REQUIRES: StepReducedAction was taken for it.
  void AllowUpdates(JobId job, uint64_t step_number);
  // In its place: the clipped step changes no weights and ends without updates
  // (its gradients overflowed), when they could have been sent.
  void SkipUpdates(JobId job, uint64_t step_number);

  // Holds the updates of steps after `step_number`, until called with nullopt:
  // a save reads the units as that step leaves them.  To be called before that
  // step is reduced.
  void HoldUpdatesAfter(JobId job, std::optional<uint64_t> step_number);

  // Sends no slot of the job until ReleaseSlots, and withdraws those that are
  // out: they are sent again then.  For a job that waits for long with its
  // steps begun.  Those that are to end do so unless a device loses one before
  // them, or the job's slots are held once more.
  void HoldSlots(JobId job, StartedSlots started);
  void ReleaseSlots(JobId job);

  // Gives up the steps that are not reduced, or may not update, yet, else the
  // newest: withdraws their slots, waits for their host operations, then
  // answers with QuietAction.  While Updating() it leaves the weights torn,
  // some of them updated: only for a job that drops them.  Older steps go on to
  // their end first. With no step unfinished it answers at once.
  void Abandon(JobId job);

  // True when a step that Abandon would give up has begun to update, or waits
  // only for a hold to end (HoldUpdatesAfter).
  bool Updating(JobId job) const;
  // No step is unfinished.
  bool Idle(JobId job) const;

  // How users and projects share, and what they had beside slots.
  void SetWeights(const ShareWeights& weights);
  void NoteUse(const DeviceCharge& use);
  // Whose jobs have a slot that could go and that no device takes now, one
  // each; not of backfill jobs, which are owed nothing.
  std::vector<JobOwner> Waiting() const;
  // Told of all that is charged, slots and what NoteUse says, when it is.
  // `charged` returns at once, and calls nothing here.
  void OnCharge(std::function<void(const DeviceCharge&)> charged) {
    charged_ = std::move(charged);
  }

  // --- devices and the host worker

  // A device can take slots; its earlier ones, if any, are sent again.
  void DeviceUp(DeviceId device, const DeviceTraits& traits = {});
  // Its worker died; nothing it had is committed any more.  It will come back.
  void DeviceDown(DeviceId device);
  // It will not come back.  REQUIRES: down.  No effect on a device that has
  // never been up.
  void DeviceLost(DeviceId device);
  // It is to be free: what it computes ends there, and it gets nothing more
  // until it is up anew or DeviceStays.  No effect on one that was never up.
  void DeviceLeaves(DeviceId device);
  void DeviceStays(DeviceId device);
  // Slots are out there.
  bool HasSlots(DeviceId device) const { return sent_.HasSlots(device); }
  // The speeds of the devices that were up and are not lost, in their order.
  // They are the stated ones, corrected by how long each device's slots took
  // against all slots, if some differ by a fifth. Devices of about one speed
  // have the same.
  std::vector<double> DeviceSpeeds() const { return sent_.Speeds(); }
  // 1 of one that is lost, or was never up.
  double DeviceSpeed(DeviceId device) const { return sent_.Speed(device); }

  void HostUp();
  void HostDown();

  // --- answers

  // Its device begins to compute it.  Ignored like SlotDone.
  void SlotStarted(SlotId slot);
  // The daemon has accepted the slot's result, which took `compute_ns` of its
  // device.  Ignored for a slot that is not out or has committed before.
  void SlotDone(SlotId slot, int64_t compute_ns);
  // What the slot contributes to a unit is in host memory for good: it may be
  // reduced before the slot is done, and no replay writes it again
  // (RunSlotAction::units_down).  Optional: SlotDone says it of all its units.
  // Ignored like SlotDone.
  void ContributionDown(SlotId slot, int unit);
  // The answer to a withdrawal: nothing of it will be written any more.
  void SlotWithdrawn(SlotId slot);
  void HostOpDone(HostOpId op);

  std::vector<Action> TakeActions();

 private:
  struct Job {
    Job(JobSteps job_steps, Priority its_priority, JobOwner its_owner)
        : steps(std::move(job_steps)),
          priority(its_priority),
          owner(std::move(its_owner)) {}

    JobSteps steps;
    Priority priority;
    JobOwner owner;
    // What a unit of a guess takes, once a slot has said so.
    std::optional<double> NsPerGuess() const;
    void NoteGuess(double amount, double taken_ns);

    double guess_taken_ns = 0;  // by slots of guessed cost
    double guess_amount = 0;    // that cost
    // For placing: NsPerGuess(), roughly.  It stays as it is while it may, so
    // that slots of equal guesses stay equal.
    std::optional<double> placing_ns;
    int64_t host_ops = 0;  // sent, or missed while it had none; for turns
  };

  JobSteps& At(JobId job) { return jobs_.at(job).steps; }
  const JobSteps& At(JobId job) const { return jobs_.at(job).steps; }
  FairShares& SharesOf(Priority priority) {
    return shares_[PriorityRank(priority)];
  }
  // What the job's slots that are out will take.
  double OutNs(JobId id) const;
  void SetDevices();
  void Vacate(DeviceId device);
  uint64_t PlaceAmong(const std::vector<SentWork::SentSlot>& sent,
                      const SentWork::SentSlot& slot);
  void Pump();
  void PumpHostOps();
  bool SendOneSlot();
  bool SendOneHostOp();

  SentWork sent_;
  std::array<FairShares, kPriorityCount> shares_;
  // What a device was told last; there is room before the first ones.
  uint64_t last_turn_ = uint64_t{1} << 60;
  // Job::host_ops of the last one that was sent, of jobs that are not urgent
  // and of those that are.
  std::array<int64_t, 2> host_ops_time_ = {};
  std::map<JobId, Job> jobs_;
  std::vector<Action> actions_;
  std::function<void(const DeviceCharge&)> charged_ = [](const DeviceCharge&) {
  };
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_DISPATCH_DISPATCHER_H_
