// What is with the workers, of all jobs, in the order it was sent, and which
// device a slot goes to.  Part of the Dispatcher (dispatcher.h).
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_DISPATCH_SENT_WORK_H_
#define ROUNDHOUSE_SCHEDULER_DISPATCH_SENT_WORK_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "scheduler/dispatch/actions.h"

namespace roundhouse {

struct DispatcherOptions {
  int max_job_slots = 2;     // of one job per device: running and prefetched
  int max_device_slots = 3;  // of all jobs per device
  int max_host_ops = 4;      // of all jobs, sent and not yet done
};

class SentWork {
 public:
  struct SentSlot {
    SlotId slot{};
    JobId job{};
    // The first of the parts of its plan's slot: they go to devices of their
    // own where there are as many.
    SlotId first_part{};
    double cost = 0;  // in a unit that all slots of the job share
    uint64_t turn = 0;
  };
  struct SentHostOp {
    RunHostOpAction action;
    bool out = false;  // false: the worker died, to be sent again
  };

  // REQUIRES: each limit at least 1.
  explicit SentWork(const DispatcherOptions& options);

  // --- devices

  // The slots that it had, to be sent again in this order.
  std::vector<SentSlot> DeviceUp(DeviceId device);
  // It keeps its slots.
  void DeviceDown(DeviceId device);
  // Returns what it had; empty where it was never up.  REQUIRES: down.
  std::vector<SentSlot> DeviceLost(DeviceId device);
  const std::vector<SentSlot>& Slots(DeviceId device) const;
  int live_device_count() const { return static_cast<int>(devices_.size()); }

  // The device that would begin the slot first: of those that are up, and have
  // no other part of its slot if there are such, the one with the least work
  // that is not done; of equals the one that has waited longest, which for
  // equal slots is the ring of RoundPipe.  None: no device is up, or that one
  // has as many slots as it may.
  std::optional<DeviceId> Place(const SentSlot& slot) const;
  void Add(DeviceId device, const SentSlot& slot);
  // Of the job's slots that are with devices.
  double CostOf(JobId job) const;
  void Remove(DeviceId device, SlotId slot);
  // Forgets its host operations.  REQUIRES: no device has a slot of it.
  void DropJob(JobId job);

  // --- the host worker

  // What it had goes out again, in order.
  std::vector<RunHostOpAction> HostUp();
  void HostDown();
  bool MaySendHostOp() const;
  void AddHostOp(const RunHostOpAction& action);
  // The operation, which is gone then; none: it is not out.
  std::optional<RunHostOpAction> HostOpDone(HostOpId op);
  const std::deque<SentHostOp>& host_ops() const { return host_ops_; }

  // Drawn per daemon life, rising.
  SlotId NextSlotId() { return static_cast<SlotId>(next_slot_++); }
  HostOpId NextHostOpId() { return static_cast<HostOpId>(next_host_op_++); }

 private:
  struct Device {
    bool up = false;
    uint64_t last_sent = 0;  // Add counts
    std::vector<SentSlot> slots;
  };

  bool Full(const Device& device, JobId job) const;

  const DispatcherOptions options_;
  std::map<DeviceId, Device> devices_;  // that are not lost
  std::deque<SentHostOp> host_ops_;
  bool host_up_ = false;
  uint64_t sent_count_ = 0;
  uint64_t next_slot_ = 1;
  uint64_t next_host_op_ = 1;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_DISPATCH_SENT_WORK_H_
