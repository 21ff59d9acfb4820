// Records whole optimizer steps of one running job: what each device computed,
// waited for and copied, and what the host did.  Other jobs' work on the
// devices is recorded with it.
//
//   idle --Begin--> armed --the job's next step is sent--> recording
//        <----- its last step is done, it ends, Cancel -----+
//
// From Begin on slots are asked to tell their copies; nothing of a slot that is
// not done at the end is known of its copies.  Without a recording all that is
// kept is which slots are with which device.
//
// A device's compute thread tells when it computed (SlotStarted,
// MicroBatchDone) and for how long it waited for what before that, but not in
// which order it waited for several things: they are laid out one after the
// other, first the slot itself, last the upload.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_TRACE_RECORDER_H_
#define ROUNDHOUSE_SERVER_OBSERVE_TRACE_RECORDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/wire/messages.h"
#include "server/observe/device_ledger.h"
#include "server/observe/trace.h"

namespace roundhouse {

// A host operation that is done.
struct HostOpTimes {
  HostOpKind kind = HostOpKind::kGather;
  int unit = 0;
  int64_t step = 0;
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
};

class TraceRecorder {
 public:
  // One ledger a device; they outlive it and are told of everything first.
  explicit TraceRecorder(std::vector<DeviceLedger>& ledgers)
      : ledgers_(ledgers), devices_(ledgers.size()) {}

  // The next `steps` whole steps of `job`; the task gets the trace, or at once
  // why not: RESOURCE_EXHAUSTED, another one is recorded.
  // REQUIRES: steps is 1 to kMaxTracedSteps.
  void Begin(const std::string& job, int64_t steps,
             std::shared_ptr<TraceTask> task);

  // Before `command` is sent; may change `command.trace`.
  void OnSlotCommand(const std::string& job, wire::RunSlot& command,
                     int64_t now_ns);
  void OnSlotDone(int device, const wire::SlotDone& done);
  void OnHostOp(const std::string& job, const HostOpTimes& work);
  // Its gradients are all there.
  void OnStepReduced(const std::string& job, int64_t step, int64_t now_ns);
  // Its updates are.
  void OnStepDone(const std::string& job, int64_t step, int64_t now_ns);
  // No step follows, for now or for good: `why` is for people.
  void OnJobStopped(const std::string& job, const std::string& why,
                    int64_t now_ns);

  // A message of a device's worker: a computation begins or ends.
  void OnDeviceMessage(int device, const wire::Message& message,
                       int64_t now_ns);
  void OnWorkerDown(int device, int64_t now_ns);
  // For good.
  void OnDeviceLost(int device, int64_t now_ns);
  // It may have been lost.
  void OnDeviceUp(int device, int64_t now_ns);
  // Whether any job has work.
  void SetBusy(bool busy, int64_t now_ns);
  // Looks whether the trace is still wanted.
  void Tick();

 private:
  struct Slot {
    std::string job;
    absl::string_view kind;
    int layer_begin = 0;
    int layer_end = 0;
    int64_t step = 0;
  };
  struct Device {
    uint64_t computing = 0;  // slot or sample; 0: nothing
    bool lost = false;
    int64_t told_ns = 0;  // intervals are there until then
  };

  bool recording() const { return trace_ != nullptr; }
  void Start(int64_t step, int64_t now_ns);
  void Stop(int64_t now_ns);
  void Drop();
  void Fail(const absl::Status& why);
  void Add(const TraceInterval& interval);
  TraceInterval IntervalOf(uint64_t slot);
  int JobIndex(const std::string& job);

  void OnStarted(int device, const wire::SlotStarted& started);
  void OnComputed(int device, uint64_t slot, int64_t until_ns,
                  const wire::WaitTimes& waits, int micro_batch);
  void OnBackfillComputed(int device, const wire::BackfillComputed& part);
  void OnGivenUp(int device, uint64_t slot, int64_t now_ns);
  // Adds what [told_ns, until_ns) was: computing, or waiting for one thing.
  void AddSpan(int device, TraceTrack track, absl::string_view kind,
               uint64_t slot, int64_t until_ns);
  // Adds `waits` to [told_ns, until_ns), before them a wait for the slot.
  void AddWaits(int device, wire::WaitTimes waits, uint64_t slot,
                int64_t until_ns);
  absl::string_view IdleKind(const Device& device) const;

  std::vector<DeviceLedger>& ledgers_;
  std::vector<Device> devices_;
  bool busy_ = false;
  std::map<uint64_t, Slot> slots_;              // with a device
  std::map<std::string, int64_t> newest_step_;  // that was sent, by job

  // The task of the trace under way; none: null.
  std::shared_ptr<TraceTask> task_;
  std::string job_;
  int64_t wanted_steps_ = 0;
  int64_t after_step_ = 0;        // it begins with the step after this one
  std::shared_ptr<Trace> trace_;  // null: armed
  int64_t step_began_ns_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_TRACE_RECORDER_H_
