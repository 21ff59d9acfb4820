// What is with the workers, of all jobs, in the order it was sent, and which
// device a slot goes to.  Part of the Dispatcher (dispatcher.h).
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_DISPATCH_SENT_WORK_H_
#define ROUNDHOUSE_SCHEDULER_DISPATCH_SENT_WORK_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/priority.h"
#include "scheduler/dispatch/actions.h"
#include "scheduler/share/fair_shares.h"

namespace roundhouse {

struct DispatcherOptions {
  // Slots of one job per device: one whose results go down, one that runs, one
  // whose weights go up.
  int max_job_slots = 3;
  // Slots of normal jobs per device, and what these and urgent jobs may have
  // beyond that: whatever the others have there, an urgent slot has room, and
  // the last one is left to the others.
  int max_device_slots = 4;
  int more_urgent_slots = 2;
  // Slots of backfill jobs per device, beside all those: one that waits for the
  // device takes nobody's place.  A worker takes kMaxDispatchedSlots of all
  // (base/wire/words.h).
  int max_backfill_slots = 3;
  int max_host_ops = 4;  // of all jobs, sent and not yet done
};

// Parts of one job's slots that are with so many devices, at most.
inline int MostSlotsAhead(int device_count) {
  return DispatcherOptions().max_job_slots * device_count;
}

// What the Dispatcher is told of a device.
struct DeviceTraits {
  // Relative to the device that costs are for: 0.5 takes twice as long.
  double speed = 1;
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
};

// The cost of a slot on a device of speed 1.
struct SlotCost {
  double amount = 0;
  bool guessed = false;  // `amount` is in units of a guess, else nanoseconds
};

class SentWork {
 public:
  struct SentSlot {
    SlotId slot{};
    JobId job{};
    Priority priority = Priority::kNormal;
    SlotId first_part{};  // of the parts of its plan's slot
    bool wide = false;    // that has several
    SlotCost cost;
    double ns = 0;             // that it will take at speed 1
    int64_t device_bytes = 0;  // that its device needs to run it
    double device_ns = 0;      // of a sent one: that it will take there
    uint64_t turn = 0;
    FairShares::Turn share;  // when it was sent
  };
  struct SentHostOp {
    RunHostOpAction action;
    bool out = false;  // false: the worker died, to be sent again
  };

  // REQUIRES: each limit at least 1.
  explicit SentWork(const DispatcherOptions& options);

  // --- devices

  // The slots that it had, to be sent again in this order.
  std::vector<SentSlot> DeviceUp(DeviceId device, const DeviceTraits& traits);
  // It keeps its slots.
  void DeviceDown(DeviceId device);
  // False: it was never up.  What it had is to be placed anew.  REQUIRES: down.
  bool DeviceLost(DeviceId device);
  // It gets no slots until it stays, or is up again.  No effect on one that was
  // never up.
  void Leave(DeviceId device);
  void Stay(DeviceId device);
  bool HasSlots(DeviceId device) const;
  const std::vector<SentSlot>& Slots(DeviceId device) const;
  int live_device_count() const { return static_cast<int>(devices_.size()); }
  // As Dispatcher's.
  double Speed(DeviceId device) const;
  std::vector<double> Speeds() const;

  // The device that would end the slot first if none ever waited: of those that
  // are up, have not just been sent another part of its plan's slot (a stage
  // goes up once for all its micro-batches there) and are large enough, as far
  // as there are such; of equals the one that is free first; of those the one
  // that was sent a slot longest ago, which for equal slots and devices is the
  // ring of RoundPipe, and for parts of a wide slot the first.  For a slot
  // devices have nothing of later classes.  None: no device is up, or that one
  // has as many slots as it may.
  std::optional<DeviceId> Place(const SentSlot& slot) const;
  void Add(DeviceId device, const SentSlot& slot);
  // The job's slots of later classes, but backfill, are of this one now, with
  // these turns.
  std::vector<SentSlot> PutForward(JobId job, Priority to,
                                   const std::function<uint64_t()>& next_turn);
  // What the job's slots that are with devices will take, where a unit of a
  // guess takes `ns_per_guess`.
  double NsOf(JobId job, double ns_per_guess) const;
  // The device has done the slot, in `compute_ns`.
  void Done(DeviceId device, SlotId slot, int64_t compute_ns);
  // It will not do it.
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
  // What slots took and were expected to, the latest ones most.
  struct Times {
    double taken_ns = 0;
    double expected_ns = 0;

    double Speed() const { return expected_ns / taken_ns; }
    void Add(const Times& other) {
      taken_ns += other.taken_ns;
      expected_ns += other.expected_ns;
    }
  };
  struct Device {
    bool up = false;
    bool leaving = false;
    DeviceTraits traits;
    Times times;
    bool differs = false;     // from all together, by them
    int slots_elsewhere = 0;  // done since its last one
    double speed = 1;         // that stated in `traits`, corrected by these
    // When it will have done its slots of this class and the ones before, on
    // the clock of `now_ns_`.
    std::array<double, kPriorityCount> free_ns = {};
    uint64_t last_sent = 0;  // Add counts
    // Per job: first_part of its slot that was sent last.
    std::map<JobId, SlotId> last_parts;
    std::vector<SentSlot> slots;
  };

  static bool HasPartBefore(const Device& device, const SentSlot& slot);
  bool Full(const Device& device, const SentSlot& slot) const;
  void MeasureSpeeds();
  double FreeNs(const Device& device, int rank) const {
    return std::max(device.free_ns[rank], now_ns_[rank]);
  }
  static std::optional<SentSlot> Take(Device& device, SlotId slot);

  const DispatcherOptions options_;
  std::map<DeviceId, Device> devices_;  // not lost
  std::deque<SentHostOp> host_ops_;
  bool host_up_ = false;
  // The latest time at which a slot that is done was to be done: costs are the
  // only clock here.
  std::array<double, kPriorityCount> now_ns_ = {};
  uint64_t sent_count_ = 0;
  uint64_t next_slot_ = 1;
  uint64_t next_host_op_ = 1;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_DISPATCH_SENT_WORK_H_
