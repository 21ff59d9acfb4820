// Who decides which device runs a part next, and when the host reduces and
// updates: events in, decisions out.  The daemon's own Dispatcher is behind
// DispatcherFeed (dispatcher_feed.h); the feeds here are for what it does not
// do.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_PART_FEED_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_PART_FEED_H_

#include <cstdint>
#include <vector>

#include "base/work_kinds.h"
#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/part_time.h"

namespace roundhouse {

class PartFeed {
 public:
  // Parts are numbered over all jobs, one after the other.
  struct Sent {
    int part = 0;
    int device = 0;
    uint64_t turn = 0;  // of parts of two jobs the lower one's goes first
    int64_t order = 0;  // of parts of two jobs: in which they were decided
    // Computes only when all that it reads is there, and nobody else's part can
    // go on (NextToCompute in step_choice.cc).
    bool backfill = false;
  };
  // kGather: the round's rows are there; kUpdate: of the step whose last round
  // `round` is.
  struct HostTask {
    HostOpKind kind = HostOpKind::kGather;
    int job = 0;
    int round = 0;  // over all steps of the job
    int layer = 0;
  };

  virtual ~PartFeed() = default;
  // The parts sent since the last call, in order.
  virtual std::vector<Sent> TakeSent() = 0;
  // Parts sent before that are to be given up, in order: a part sent again runs
  // from its beginning.
  virtual std::vector<int> TakeWithdrawn() { return {}; }
  // Whether host work starts by TakeHostTasks; else as host_work.h says.
  virtual bool directs_host() const { return false; }
  virtual std::vector<HostTask> TakeHostTasks() { return {}; }

  // A part's compute has ended; its results may still be on their way.
  virtual void Computed(int part) = 0;
  // All that it contributes to a layer's gradient is in host memory.
  virtual void ContributionDown(int /*part*/, int /*layer*/) {}
  // All its results are.
  virtual void Done(int /*part*/) {}
  // A reduction or an update.
  virtual void HostTaskDone(const HostTask& /*task*/) {}
  // It will not come back, and nothing of it has arrived since.
  virtual void DeviceLost(int device);
};

// Parts go out in order, each to the device that would finish it first if none
// ever waited (of equals the lowest), has no other part of its slot, and has
// the memory to run it between two like it (of none that has, any): with equal
// parts and devices that is RoundPipe's ring.  A device has at most `most_sent`
// parts that it has not computed: the one that runs, and those that are
// uploaded under it. Deterministic; thread-compatible.
class EarliestFinishFeed : public PartFeed {
 public:
  // REQUIRES: no slot has more parts than there are devices, most_sent >= 1.
  // The arguments must outlive it.
  EarliestFinishFeed(const std::vector<Part>& parts, const ModelCosts& costs,
                     const Machine& machine, int most_sent);

  std::vector<Sent> TakeSent() override;
  void Computed(int part) override;

  // The device of every part of so many rounds of them, where none is ever
  // full.  Instead of TakeSent; once.
  std::vector<int> AssignAll(int rounds);

 private:
  struct Device {
    double work_ns = 0;
    int slot = -1;  // of its last part
    int sent = 0;   // and not computed
  };

  // A part on one of the devices.
  struct OnDevice {
    bool too_small = false;
    double takes_ns = 0;
  };

  int EarliestFinish(int part, int slot);
  int EarliestOfUnequal(int part, int slot);
  void MeasureOnEach(int part);
  // `slot`: of the part, over all rounds.
  void Give(int device, int part, int slot);

  const std::vector<Part>& parts_;
  const Machine& machine_;
  const int most_sent_;
  const bool equal_devices_;
  std::vector<double> part_ns_;
  // Where devices differ.
  std::vector<int64_t> part_bytes_;
  std::vector<OnDevice> on_each_;  // of the part that was measured last
  int measured_ = -1;
  std::vector<Device> devices_;
  std::vector<int> device_of_;  // per part sent
  int blocked_on_ = -1;         // the full device that the next part waits for
};

// Parts go out in order, each to the next device, whatever it has to do: the
// order of RoundPipe.  Deterministic; thread-compatible.
class RingFeed : public PartFeed {
 public:
  // REQUIRES: device_count and most_sent at least 1.
  RingFeed(int part_count, int device_count, int most_sent);

  std::vector<Sent> TakeSent() override;
  void Computed(int part) override;

 private:
  const int part_count_;
  const int most_sent_;
  int next_ = 0;
  std::vector<int> sent_;  // and not computed, per device
};

// The device of every part of so many rounds of them under an
// EarliestFinishFeed: it doesn't depend on when parts are computed.
std::vector<int> AssignDevices(const std::vector<Part>& parts,
                               const ModelCosts& costs, const Machine& machine,
                               int rounds = 1);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_PART_FEED_H_
