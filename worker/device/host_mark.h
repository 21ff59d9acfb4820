// Events and marks of a Stream whose work is over when its call returns.  The
// loss is the device's, which outlives them.
#ifndef ROUNDHOUSE_WORKER_DEVICE_HOST_MARK_H_
#define ROUNDHOUSE_WORKER_DEVICE_HOST_MARK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "worker/device/device.h"
#include "worker/device/injected_loss.h"

namespace roundhouse::worker {

class HostEvent : public Event {
 public:
  explicit HostEvent(const InjectedLoss& loss) : loss_(loss) {}
  absl::Status Wait() override { return loss_.Check(); }

 private:
  const InjectedLoss& loss_;
};

class HostMark : public TimeMark {
 public:
  absl::StatusOr<int64_t> NsSince(const TimeMark& earlier) const override {
    return at_ns_ - static_cast<const HostMark&>(earlier).at_ns_;
  }

 private:
  const int64_t at_ns_ = MonotonicNs();
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_HOST_MARK_H_
