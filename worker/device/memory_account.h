// Counts a device's memory against its limit.  Thread-safe.
#ifndef ROUNDHOUSE_WORKER_DEVICE_MEMORY_ACCOUNT_H_
#define ROUNDHOUSE_WORKER_DEVICE_MEMORY_ACCOUNT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

class MemoryAccount {
 public:
  explicit MemoryAccount(uint64_t limit_bytes) {
    memory_.limit_bytes = limit_bytes;
  }

  // Takes `bytes` for `what`, or RESOURCE_EXHAUSTED naming both, what is free
  // and the limit; then nothing was taken.
  absl::Status Take(uint64_t bytes, const std::string& what);
  // REQUIRES: taken before (checked).
  void Give(uint64_t bytes);
  DeviceMemory memory() const;
  uint64_t TakePeak();

 private:
  mutable Mutex mutex_;
  DeviceMemory memory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_MEMORY_ACCOUNT_H_
