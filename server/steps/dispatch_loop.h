// The daemon's one Dispatcher, and who carries out its actions: the running
// jobs.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_STEPS_DISPATCH_LOOP_H_
#define ROUNDHOUSE_SERVER_STEPS_DISPATCH_LOOP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "base/ids.h"
#include "base/priority.h"
#include "base/wire/messages.h"
#include "scheduler/dispatch/dispatcher.h"
#include "server/loop/event_loop.h"
#include "server/workers/peer_group.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

// The event on a worker that made actions of its job possible.
struct Enabler {
  int64_t ns = 0;  // on the worker's monotonic clock; 0: no such event
  wire::WaitCause cause = wire::WaitCause::kDispatch;  // what ended there
};

class DispatchLoop {
 public:
  class Job {
   public:
    virtual ~Job() = default;
    // Carries the action out; `by` says what made it possible.
    virtual void Execute(const Action& action, const Enabler& by) = 0;
    // All actions so far are carried out, and no message waits: soon after
    // CarryOut, or after several.
    virtual void AfterActions() = 0;
    // Devices do not reach each other any more.
    virtual void OnPeersOver() = 0;
  };

  // `loop` and `pool` outlive it.
  DispatchLoop(EventLoop& loop, WorkerPool& pool,
               const PeerGroup::Options& peers);

  // Whether and how devices add up sums between them.
  PeerGroup& peers() { return peers_; }

  // Its decisions are carried out by CarryOut, which must follow.
  Dispatcher& dispatcher() { return dispatcher_; }
  const Dispatcher& dispatcher() const { return dispatcher_; }

  // What the job gets of the devices.
  struct Claim {
    JobOwner owner;
    Priority priority = Priority::kNormal;
  };
  // `job` outlives its being here.
  void Add(JobId id, const JobShape& shape, const Claim& claim, Job* job);
  // Its actions that are not carried out yet are dropped.
  // REQUIRES: Dispatcher::RemoveJob's.
  void Remove(JobId id);
  // Carries out nothing more, whatever is with workers: the daemon ends.
  void Leave(JobId id) { jobs_.erase(id); }

  // Has the jobs carry out what the dispatcher decided, until nothing is left.
  // From within an Execute: returns at once, the outer call goes on.
  void CarryOut() { CarryOut(JobId{}, Enabler{}); }
  // The same after an event of `job`: its actions get `by`, other jobs' none.
  void CarryOut(JobId job, const Enabler& by);

  // What workers say of the group that peers() is.
  void OnMessage(WorkerId worker, const wire::Message& message) {
    peers_.OnMessage(worker, message);
  }
  // The pool's events of device and host workers, after every job has been told
  // (a worker must know the jobs whose slots it gets).
  void OnWorkerUp(WorkerId worker);
  void OnWorkerDown(WorkerId worker);
  void OnDeviceLost(DeviceId device);

  // The device is to be free (Dispatcher::DeviceLeaves): `vacated` is called
  // once nothing of any job is there, or its worker is gone; not from within
  // this call, and not after Stay.
  void Vacate(DeviceId device, std::function<void()> vacated);
  // It is used again, if its worker is there.
  void Stay(DeviceId device);

 private:
  void ExecuteOne(const Action& action, JobId job, const Enabler& by);
  void AfterActions();
  bool IsVacant(DeviceId device) const;
  void TellVacated();

  EventLoop& loop_;
  WorkerPool& pool_;
  PeerGroup peers_;
  Dispatcher dispatcher_{DispatcherOptions{}};
  std::map<JobId, Job*> jobs_;
  std::map<DeviceId, std::function<void()>> leaving_;
  bool carrying_out_ = false;
  bool after_actions_due_ = false;
  // Shared with what the loop is to run: it sees by it that this is gone.
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STEPS_DISPATCH_LOOP_H_
