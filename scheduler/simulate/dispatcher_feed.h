// The daemon's Dispatcher in virtual time: it decides which device runs a part
// next, and when the host gathers, reduces and updates, from the same events as
// in the daemon.
//
// What the daemon's other parts do around it is here, too: a job begins its
// next step as soon as the Dispatcher takes one, and gives the clip factor once
// a step is reduced; a worker uploads the weights of as many parts as the plan
// looks ahead beside the one that runs, and keeps what it was sent beyond them;
// withdrawals are answered at once; gathering rows takes no time, and waits for
// the embedding's update.  Thread-compatible; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_DISPATCHER_FEED_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_DISPATCHER_FEED_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "base/priority.h"
#include "scheduler/dispatch/dispatcher.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/part_time.h"
#include "scheduler/simulate/host_work.h"
#include "scheduler/simulate/part_feed.h"

namespace roundhouse {

// A job behind a DispatcherFeed.  Pointers outlive the feed.
struct FedJob {
  const ModelCosts* costs = nullptr;
  const StepPlan* plan = nullptr;
  HostWork::Rounds rounds;
  Priority priority = Priority::kNormal;
  // Blocks for each of a round's micro-batches; none, or more: as many as the
  // slots that may be with devices need.
  std::optional<int64_t> boundary_tensors = {};
};

struct DispatcherFeedOptions {
  // A layer is reduced once it is down everywhere; else once every part that
  // contributes to it is done.  REQUIRES: false where devices are lost.
  bool reports_contributions = true;
};

// Whether the model's slots write a gradient of the embedding's rows.
RowGradient RowGradientOf(const ModelCosts& costs);

class DispatcherFeed : public PartFeed {
 public:
  // Parts are numbered as SimulateJobs does: job by job, round by round.
  // REQUIRES: at least one job; plans that CheckStepPlan accepts.
  DispatcherFeed(const std::vector<FedJob>& jobs, const Machine& machine,
                 const DispatcherFeedOptions& options);

  std::vector<Sent> TakeSent() override;
  std::vector<int> TakeWithdrawn() override;
  bool directs_host() const override { return true; }
  std::vector<HostTask> TakeHostTasks() override;
  void Computed(int part) override;
  void ContributionDown(int part, int layer) override;
  void Done(int part) override;
  void HostTaskDone(const HostTask& task) override;
  void DeviceLost(int device) override;

  const Dispatcher& dispatcher() const { return dispatcher_; }

 private:
  struct Job {
    FedJob fed;
    std::vector<Part> parts;  // of a round
    StepSpec spec;            // of every step
    int first_number = 0;
    int steps_begun = 0;
  };
  // A part of a job that is with the Dispatcher's devices.
  struct Out {
    SlotId slot{};
    int device = 0;
    bool sent = false;      // by TakeSent
    bool computed = false;  // of a sent one
  };
  struct Waiting {
    int part = 0;
    uint64_t turn = 0;
    int64_t order = 0;
  };
  using HostKey = std::tuple<HostOpKind, int, int, int>;
  static HostKey KeyOf(const HostTask& task) {
    return {task.kind, task.job, task.round, task.layer};
  }

  static DispatcherOptions OptionsFor(const std::vector<FedJob>& jobs);
  static JobShape ShapeOf(const FedJob& job);
  StepSpec SpecOf(const FedJob& job) const;
  void AddJob(const FedJob& job, int first_number);
  void BeginStep(int job);
  int JobOf(int part) const;
  int NumberOf(const RunSlotAction& action) const;

  void CarryOut();
  void Execute(const RunSlotAction& action);
  void Execute(const WithdrawSlotAction& action);
  void Execute(const SetTurnAction& action);
  void Execute(const RunHostOpAction& action);
  void Execute(const StepReducedAction& action);
  void Execute(const StepDoneAction& action);
  void Execute(const QuietAction& action);
  void Gather(const HostTask& task);
  void Reduce(const HostTask& task, std::optional<HostOpId> op);

  const Machine& machine_;
  const DispatcherFeedOptions options_;
  const int job_slots_;  // that a device has of a job, at most
  Dispatcher dispatcher_;
  std::vector<Job> jobs_;
  std::map<int, Out> out_;  // by part
  std::map<SlotId, int> part_of_;
  // Per device and job: with the worker, whose weights do not go up yet.
  std::vector<std::vector<std::deque<Waiting>>> waiting_;
  // Per device and job: sent and not computed.
  std::vector<std::vector<int>> uncomputed_;
  int64_t decided_ = 0;  // parts
  // Since TakeSent: else it has nothing to say, nor has the Dispatcher.
  bool changed_ = true;
  // Since then: something that waited, or what it waited for, is there.
  bool may_send_ = true;
  std::vector<int> withdrawn_;
  std::vector<HostTask> tasks_;
  // None: the operation goes on after it.
  std::map<HostKey, std::optional<HostOpId>> host_ops_;
  // Reductions and gathers, by what they wait for.
  std::multimap<HostKey, HostTask> after_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_DISPATCHER_FEED_H_
