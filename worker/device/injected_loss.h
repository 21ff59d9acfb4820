// For devices that are not GPUs: whether Stream::BreakDevice broke the device,
// and what its calls then return.  Thread-safe; a check is one relaxed load.
#ifndef ROUNDHOUSE_WORKER_DEVICE_INJECTED_LOSS_H_
#define ROUNDHOUSE_WORKER_DEVICE_INJECTED_LOSS_H_

#include <atomic>

#include "absl/status/status.h"

namespace roundhouse::worker {

class InjectedLoss {
 public:
  void Happen() { lost_.store(true, std::memory_order_relaxed); }

  // ABORTED once it happened.
  absl::Status Check() const {
    if (!lost_.load(std::memory_order_relaxed)) return absl::OkStatus();
    return absl::AbortedError("device is lost: a fault was injected");
  }

 private:
  std::atomic<bool> lost_{false};
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_INJECTED_LOSS_H_
