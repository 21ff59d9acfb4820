#include "worker/device/pinned_ranges.h"

#include <iterator>

namespace roundhouse::worker {

bool PinnedRanges::Overlaps(const std::byte* data, uint64_t bytes) const {
  const auto behind = ranges_.lower_bound(data + bytes);
  if (behind == ranges_.begin()) return false;
  const auto& [begin, size] = *std::prev(behind);
  return data < begin + size;
}

PinnedRanges::Added PinnedRanges::Add(const std::byte* data, uint64_t bytes) {
  MutexLock lock(mutex_);
  if (Overlaps(data, bytes)) return Added::kOverlaps;
  if (bytes > limit_bytes_ - bytes_) {
    ++refusals_;
    return Added::kOverLimit;
  }
  ranges_[data] = bytes;
  bytes_ += bytes;
  return Added::kYes;
}

bool PinnedRanges::Remove(const std::byte* data) {
  MutexLock lock(mutex_);
  const auto found = ranges_.find(data);
  if (found == ranges_.end()) return false;
  bytes_ -= found->second;
  ranges_.erase(found);
  return true;
}

bool PinnedRanges::MayCopy(const std::byte* data, uint64_t bytes) const {
  MutexLock lock(mutex_);
  const auto after = ranges_.upper_bound(data);
  if (after != ranges_.begin()) {
    const auto& [begin, size] = *std::prev(after);
    if (data + bytes <= begin + size) return true;
  }
  return !Overlaps(data, bytes);
}

uint64_t PinnedRanges::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

int PinnedRanges::refusals() const {
  MutexLock lock(mutex_);
  return refusals_;
}

void PinnedRanges::set_limit_bytes(uint64_t bytes) {
  MutexLock lock(mutex_);
  limit_bytes_ = bytes;
}

}  // namespace roundhouse::worker
