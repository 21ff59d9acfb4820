// Events and marks of a Stream whose work is over when its call returns.  The
// loss is the device's, which outlives them.
#ifndef ROUNDHOUSE_WORKER_DEVICE_HOST_MARK_H_
#define ROUNDHOUSE_WORKER_DEVICE_HOST_MARK_H_

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
    return std::chrono::nanoseconds(at_ -
                                    static_cast<const HostMark&>(earlier).at_)
        .count();
  }

 private:
  const std::chrono::steady_clock::time_point at_ =
      std::chrono::steady_clock::now();
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_HOST_MARK_H_
