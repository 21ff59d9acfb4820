// For devices in tests: which host memory is pinned, by CUDA's rules.
// Thread-safe.
#ifndef ROUNDHOUSE_WORKER_DEVICE_PINNED_RANGES_H_
#define ROUNDHOUSE_WORKER_DEVICE_PINNED_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>

#include "base/mutex.h"

namespace roundhouse::worker {

class PinnedRanges {
 public:
  enum class Added { kYes, kOverlaps, kOverLimit };
  Added Add(const std::byte* data, uint64_t bytes);
  bool Remove(const std::byte* data);  // false: Add did not get it

  // Whether a copy may read or write it: it lies in one range, or apart from
  // all.
  bool MayCopy(const std::byte* data, uint64_t bytes) const;

  uint64_t bytes() const;
  // How often Add said kOverLimit.
  int refusals() const;
  void set_limit_bytes(uint64_t bytes);

 private:
  bool Overlaps(const std::byte* data, uint64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::map<const std::byte*, uint64_t> ranges_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int refusals_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t limit_bytes_ ABSL_GUARDED_BY(mutex_) =
      std::numeric_limits<uint64_t>::max();
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_PINNED_RANGES_H_
