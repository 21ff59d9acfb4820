// The steps of one job that are under way, and what of them is with workers:
// sends what the dispatcher decides, and accepts what the workers answer.
//
// An answer counts once, for the attempt that is out; what it means for the
// dispatcher is said before anything that follows from it.  What telemetry is
// told waits until the workers have their next commands (Publish).
//
// Owned by the job's runner.  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_STEPS_STEP_BOOK_H_
#define ROUNDHOUSE_SERVER_STEPS_STEP_BOOK_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/job_state.h"
#include "base/priority.h"
#include "base/wire/messages.h"
#include "scheduler/dispatch/dispatcher.h"
#include "server/job/job_memory.h"
#include "server/job/job_reports.h"
#include "server/steps/dispatch_loop.h"
#include "server/steps/step_entry.h"
#include "server/steps/step_measures.h"
#include "server/steps/step_telemetry.h"
#include "server/steps/wide_sums.h"
#include "server/workers/replies.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

class StepBook final : private DispatchLoop::Job, private ReplyHandler {
 public:
  // What the steps mean for the job.  The calls come from the dispatch loop and
  // with workers' answers; from within the book's own functions only OnStep.
  class Owner {
   public:
    virtual ~Owner() = default;
    // All gradients of the step are there.
    virtual void OnStepReduced(uint64_t number, StepEntry& entry) = 0;
    // It is over, and no longer in the book.
    virtual void OnStepDone(const StepEntry& entry) = 0;
    // The steps are given up (Dispatcher::Abandon): none is left.
    virtual void OnQuiet() = 0;
    // A micro-batch of the step has a loss that is not finite.
    virtual void OnLossNotFinite(const StepEntry& entry) = 0;
    // A worker could not do what it was sent.
    virtual void OnWorkerFailed(JobReason reason, const std::string& text) = 0;
    // What ReportStep was given, in its place among what telemetry is told.
    virtual void OnStep(const StepReport& report) = 0;
  };
  // All outlive it.
  struct Surroundings {
    WorkerPool& pool;
    DispatchLoop& dispatch;
    JobMemory& memory;
    StepTelemetry& telemetry;
    Owner& owner;
  };

  StepBook(const Surroundings& around, JobId job, const JobOwner& owner = {},
           Priority priority = Priority::kNormal);
  ~StepBook() override;
  StepBook(const StepBook&) = delete;
  StepBook& operator=(const StepBook&) = delete;

  // Tells a worker where the job's layout is, if it is up and wants to know.
  // REQUIRES: the memory is allocated.
  void Configure(WorkerId worker);
  // The dispatcher has the job from here to Close; `measures` outlives that.
  void Open(StepMeasures& measures);
  bool open() const { return measures_ != nullptr; }
  // The class of its next slots, whether or not it is open.
  void SetPriority(Priority priority);
  // Takes the job from dispatcher and workers, whether or not it is open.
  // REQUIRES: Dispatcher::RemoveJob's.
  void Close();

  // The others REQUIRE: open().
  // Enters a step, which Begin must follow with the number that this answers.
  uint64_t Enter(StepEntry entry);
  void Begin(uint64_t number, const StepSpec& spec);
  // Holds the updates of all later steps than the first one in the book that is
  // to be saved; with none, of none.
  void HoldForNextSave();
  // No slot of the job is sent until ReleaseSlots, and those that are out are
  // asked for (Dispatcher::HoldSlots).
  void HoldSlots(StartedSlots started);
  void ReleaseSlots();
  // No step is unfinished.
  bool idle() const { return around_.dispatch.dispatcher().Idle(job_); }
  // For Publish.
  void ReportStep(const StepReport& report) { untold_steps_.push_back(report); }
  // Tells telemetry and owner what was done.  Also when it is not open.
  void Publish();

  // The device does not come back by itself.
  void OnDeviceLost(DeviceId device) { down_since_ns_.erase(device); }

 private:
  // DispatchLoop::Job
  void Execute(const Action& action, const Enabler& by) override;
  void AfterActions() override { Publish(); }
  void OnPeersOver() override;
  void SendSlot(const RunSlotAction& action, const Enabler& by);
  void Withdraw(const WithdrawSlotAction& action);
  void SetTurn(const SetTurnAction& action);
  void SendHostOp(const RunHostOpAction& action);
  void EndStep(const StepDoneAction& action);
  void GiveUp();
  void FillIfNeeded(StepEntry& entry, int round, int set);

  // step_answers.cc: what the workers say
  void OnReply(WorkerId worker, const wire::Message& reply) override;
  void OnLost(WorkerId worker, uint64_t attempt,
              const std::string& why) override;
  void OnSlotStarted(uint64_t attempt, const wire::SlotStarted& started);
  void OnWithdrawn(uint64_t attempt, SlotId id);
  void OnSlotDone(WorkerId worker, uint64_t attempt,
                  const wire::SlotDone& done);
  void OnHostOpDone(const wire::HostOpDone& done);
  void OnFailed(WorkerId worker, uint64_t attempt, const wire::Failed& failed);
  void OnHostFailed(uint64_t attempt, const wire::Failed& failed);
  void OnSlotFailed(WorkerId worker, uint64_t attempt,
                    const wire::Failed& failed);
  void OnHeldSums(WorkerId worker, uint64_t attempt, const wire::Body& body);
  void OnSumsDown(WorkerId worker, uint64_t attempt,
                  const wire::SumsDown& sums);
  // The job can go now and could not before, or not as urgently; without a step
  // it can as the next one begins.
  void NoteReady();
  OutSlot* FindOut(WorkerId worker, uint64_t attempt, SlotId id);
  void NoteRecovery(DeviceId device, int64_t started_ns);
  void NoteHostOp(StepEntry& entry, const RunHostOpAction& action,
                  const wire::HostOpDone& done);

  Dispatcher& dispatcher() { return around_.dispatch.dispatcher(); }
  void CarryOut(const Enabler& by) { around_.dispatch.CarryOut(job_, by); }
  TrainingState& state() { return around_.memory.state(); }
  const RoundBuffers& buffers() const { return around_.memory.buffers(); }
  WideSums::Job Now() { return {steps_, out_slots_, state(), buffers()}; }

  const Surroundings around_;
  const JobId job_;
  const JobOwner owner_;
  Priority priority_;
  StepMeasures* measures_ = nullptr;     // null: the dispatcher has no job
  std::map<uint64_t, StepEntry> steps_;  // by the dispatcher's step number
  std::map<SlotId, OutSlot> out_slots_;
  std::map<HostOpId, OutHostOp> out_host_ops_;
  WideSums wide_sums_;
  std::map<DeviceId, int64_t> down_since_ns_;  // workers that died with slots
  bool comes_ = true;  // it can go as its next step begins
  // An urgent job can go since then, and no slot has begun; 0: it is not so.
  int64_t urgent_since_ns_ = 0;
  std::set<SlotId> failed_slots_;
  std::vector<std::pair<OutSlot, wire::SlotDone>> untold_slots_;
  std::vector<StepReport> untold_steps_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STEPS_STEP_BOOK_H_
