#include "server/pool/host_arena.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr uint64_t kPageBytes = 4096;

uint64_t RoundUp(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

HostArena::HostArena(std::unique_ptr<wire::Arena> arena, uint64_t limit_bytes,
                     uint64_t header_bytes)
    : arena_(std::move(arena)),
      limit_bytes_(limit_bytes),
      used_bytes_(header_bytes) {
  allocations_[0] = header_bytes;
}

absl::StatusOr<std::unique_ptr<HostArena>> HostArena::Create(
    uint64_t limit_bytes, uint32_t worker_count) {
  const uint64_t header_bytes = RoundUp(sizeof(wire::ArenaHeader));
  if (limit_bytes < 2 * header_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("host-memory: ", limit_bytes,
                     " bytes is less than the minimum of ", 2 * header_bytes));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<wire::Arena> arena,
                   wire::Arena::Create(limit_bytes, worker_count));
  return std::unique_ptr<HostArena>(
      new HostArena(std::move(arena), limit_bytes, header_bytes));
}

absl::StatusOr<uint64_t> HostArena::FindGap(uint64_t bytes) const {
  uint64_t end = 0;
  for (const auto& [offset, size] : allocations_) {
    if (offset - end >= bytes) return end;
    end = offset + size;
  }
  if (arena_->size_bytes() - end >= bytes) return end;
  return absl::ResourceExhaustedError("");
}

uint64_t HostArena::largest_gap_bytes() const {
  uint64_t largest = 0;
  uint64_t end = 0;
  for (const auto& [offset, size] : allocations_) {
    largest = std::max(largest, offset - end);
    end = offset + size;
  }
  return std::max(largest, arena_->size_bytes() - end);
}

absl::StatusOr<uint64_t> HostArena::Allocate(uint64_t bytes) {
  const uint64_t size = RoundUp(bytes == 0 ? 1 : bytes);
  const absl::StatusOr<uint64_t> offset = FindGap(size);
  if (bytes > limit_bytes_ || !offset.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "host memory: ", bytes, " bytes wanted, ", limit_bytes_ - used_bytes_,
        " of ", limit_bytes_, " are free (--host-memory)"));
  }
  if (fallocate(arena_->fd(), 0, static_cast<off_t>(*offset),
                static_cast<off_t>(size)) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("host memory: the system could not reserve ", size,
                     " bytes: ", std::strerror(errno)));
  }
  allocations_[*offset] = size;
  used_bytes_ += size;
  return *offset;
}

void HostArena::Free(uint64_t offset) {
  const auto found = allocations_.find(offset);
  ROUNDHOUSE_CHECK(offset != 0 && found != allocations_.end()) << offset;
  ROUNDHOUSE_CHECK(fallocate(arena_->fd(),
                             FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                             static_cast<off_t>(offset),
                             static_cast<off_t>(found->second)) == 0)
      << std::strerror(errno);
  used_bytes_ -= found->second;
  allocations_.erase(found);
}

absl::StatusOr<ArenaRange> ArenaRange::Allocate(HostArena& arena,
                                                uint64_t bytes) {
  ArenaRange range;
  ASSIGN_OR_RETURN(range.offset_, arena.Allocate(bytes));
  range.arena_ = &arena;
  range.bytes_ = bytes;
  return range;
}

ArenaRange& ArenaRange::operator=(ArenaRange&& other) noexcept {
  if (arena_ != nullptr) arena_->Free(offset_);
  arena_ = std::exchange(other.arena_, nullptr);
  offset_ = std::exchange(other.offset_, 0);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

ArenaRange::~ArenaRange() {
  if (arena_ != nullptr) arena_->Free(offset_);
}

}  // namespace roundhouse
