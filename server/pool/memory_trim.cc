#include "server/pool/memory_trim.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

namespace roundhouse {

uint64_t PrivateRamBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0, resident = 0, shared = 0;
  statm >> pages >> resident >> shared;
  if (!statm || shared > resident) return 0;
  return (resident - shared) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

MemoryTrim::MemoryTrim(absl::Duration interval)
    : interval_(interval), kept_bytes_(PrivateRamBytes()) {
  thread_ = std::thread([this] { Loop(); });
}

MemoryTrim::~MemoryTrim() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void MemoryTrim::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto interval =
      std::chrono::nanoseconds(absl::ToInt64Nanoseconds(interval_));
  while (!changed_.wait_for(lock, interval, [this] { return stop_; })) {
    // What was trimmed counts as free all the same: look at what is in RAM.
    if (PrivateRamBytes() >= kept_bytes_ + kWorthTrimmingBytes &&
        mallinfo2().fordblks >= kWorthTrimmingBytes) {
      malloc_trim(0);
      kept_bytes_ = PrivateRamBytes();
    }
    kept_bytes_ = std::min(kept_bytes_, PrivateRamBytes());
  }
}

}  // namespace roundhouse
