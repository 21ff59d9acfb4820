// Who decides which device runs a part next: events in, parts out, like
// scheduler/dispatch/Dispatcher, so that the daemon's own can take this place
// in a simulation.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_PART_FEED_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_PART_FEED_H_

#include <cstdint>
#include <vector>

#include "scheduler/simulate/machine.h"
#include "scheduler/simulate/model_costs.h"
#include "scheduler/simulate/step_plan.h"

namespace roundhouse {

class PartFeed {
 public:
  struct Sent {
    int part = 0;  // index into the parts
    int device = 0;
  };

  virtual ~PartFeed() = default;
  // The parts sent since the last call, in order.
  virtual std::vector<Sent> TakeSent() = 0;
  // A part's compute has ended; its gradients may still be on their way.
  virtual void Computed(int part) = 0;
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

 private:
  struct Device {
    double work_ns = 0;
    int slot = -1;  // of its last part
    int sent = 0;   // and not computed
  };

  double FinishNs(int device, int part) const;
  int EarliestFinish(int part) const;

  const std::vector<Part>& parts_;
  const Machine& machine_;
  const int most_sent_;
  std::vector<double> part_ns_;
  std::vector<int64_t> part_bytes_;
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

// The device of every part under an EarliestFinishFeed: it doesn't depend on
// when parts are computed.
std::vector<int> AssignDevices(const std::vector<Part>& parts,
                               const ModelCosts& costs, const Machine& machine);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_PART_FEED_H_
