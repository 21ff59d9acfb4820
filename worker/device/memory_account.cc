#include "worker/device/memory_account.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace roundhouse::worker {

absl::Status MemoryAccount::Take(uint64_t bytes, const std::string& what) {
  MutexLock lock(mutex_);
  const uint64_t free = memory_.limit_bytes - memory_.used_bytes;
  if (bytes > free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("device memory: ", what, " wants ", bytes, " bytes, ",
                     free, " of ", memory_.limit_bytes, " are free"));
  }
  memory_.used_bytes += bytes;
  memory_.peak_bytes = std::max(memory_.peak_bytes, memory_.used_bytes);
  return absl::OkStatus();
}

void MemoryAccount::Give(uint64_t bytes) {
  MutexLock lock(mutex_);
  ROUNDHOUSE_CHECK(bytes <= memory_.used_bytes)
      << bytes << " bytes given back, " << memory_.used_bytes << " in use";
  memory_.used_bytes -= bytes;
}

DeviceMemory MemoryAccount::memory() const {
  MutexLock lock(mutex_);
  return memory_;
}

uint64_t MemoryAccount::TakePeak() {
  MutexLock lock(mutex_);
  const uint64_t peak = memory_.peak_bytes;
  memory_.peak_bytes = memory_.used_bytes;
  return peak;
}

}  // namespace roundhouse::worker
