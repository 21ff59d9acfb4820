#include "server/loop/memory_trim.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace roundhouse {

uint64_t PrivateRamBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0, resident = 0, shared = 0;
  statm >> pages >> resident >> shared;
  if (!statm || shared > resident) return 0;
  return (resident - shared) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

namespace {

// Bytes in RAM that no allocation uses: what is free but was not given back,
// beside stacks and the program's own data.  Below 0 while some of what is
// allocated was not touched yet.  What was trimmed still counts as free in
// mallinfo2, so fordblks can't say it.
int64_t UnusedRamBytes() {
  const uint64_t ram_bytes = PrivateRamBytes();
  const auto heap = mallinfo2();
  // What is allocated between the two looks is not unused.
  return static_cast<int64_t>(std::min(ram_bytes, PrivateRamBytes())) -
         static_cast<int64_t>(heap.uordblks + heap.hblkhd);
}

// Returns how much less is in RAM.
int64_t Trim() {
  const uint64_t before_bytes = PrivateRamBytes();
  malloc_trim(0);
  const uint64_t after_bytes = PrivateRamBytes();
  return after_bytes < before_bytes
             ? static_cast<int64_t>(before_bytes - after_bytes)
             : 0;
}

}  // namespace

MemoryTrim::MemoryTrim(absl::Duration interval)
    : interval_(interval), kept_bytes_(UnusedRamBytes()) {
  // What it can't set it does without.
  (void)mallopt(M_TRIM_THRESHOLD, kFreeTopBytes);
  (void)mallopt(M_MMAP_THRESHOLD, kArenaAllocationBytes);
  thread_ = std::thread([this] { Loop(); });
}

MemoryTrim::~MemoryTrim() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyOne();
  thread_.join();
}

void MemoryTrim::Loop() {
  MutexLock lock(mutex_);
  while (true) {
    const CondVar::Deadline deadline = CondVar::DeadlineIn(interval_);
    while (!stop_ && changed_.WaitUntil(mutex_, deadline)) {
    }
    if (stop_) return;
    // What is freed while this trims is not kept: it comes off the next time.
    int64_t unused_bytes = UnusedRamBytes();
    if (unused_bytes >= kept_bytes_ + kWorthTrimmingBytes) {
      unused_bytes -= Trim();
      kept_bytes_ = unused_bytes;
    }
    kept_bytes_ = std::min(kept_bytes_, unused_bytes);
  }
}

}  // namespace roundhouse
