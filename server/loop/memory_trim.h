// Gives back to the system what a burst of allocations has left free.
//
// glibc keeps freed memory in an arena for each thread, and for good when what
// lies above it is in use: after a flood of calls the daemon would keep some
// hundred MB.  A look every kTrimInterval is enough, since nobody waits for it.
#ifndef ROUNDHOUSE_SERVER_LOOP_MEMORY_TRIM_H_
#define ROUNDHOUSE_SERVER_LOOP_MEMORY_TRIM_H_

#include <cstdint>
#include <thread>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace roundhouse {

inline constexpr absl::Duration kTrimInterval = absl::Seconds(10);
// What is free and has come since the last time is given back from this on.
inline constexpr int64_t kWorthTrimmingBytes = 16 << 20;
// Until then glibc keeps so much free at the end of each arena, and takes what
// is smaller than the other from arenas: a stream of chunks of 1 MiB would else
// have the system clear the same pages again for each.
inline constexpr int kFreeTopBytes = 32 << 20;
inline constexpr int kArenaAllocationBytes = 4 << 20;

// Memory of this process that is in RAM and no file's or other process's;
// 0: /proc does not say.
uint64_t PrivateRamBytes();

// Trims in a thread of its own.  Thread-compatible.
class MemoryTrim {
 public:
  explicit MemoryTrim(absl::Duration interval = kTrimInterval);
  ~MemoryTrim();
  MemoryTrim(const MemoryTrim&) = delete;
  MemoryTrim& operator=(const MemoryTrim&) = delete;

 private:
  void Loop();

  const absl::Duration interval_;
  int64_t kept_bytes_;  // in RAM and unused after the last time; the thread's
  Mutex mutex_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_LOOP_MEMORY_TRIM_H_
