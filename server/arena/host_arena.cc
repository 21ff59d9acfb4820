#include "server/arena/host_arena.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/byte_text.h"
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
                     uint64_t header_bytes, const ArenaPagesOptions& pages)
    : arena_(std::move(arena)),
      limit_bytes_(limit_bytes),
      used_bytes_(header_bytes),
      pages_(*arena_, pages) {
  allocations_[0] = {header_bytes};
}

absl::StatusOr<std::unique_ptr<HostArena>> HostArena::Create(
    uint64_t limit_bytes, uint32_t worker_count,
    const ArenaPagesOptions& pages) {
  const uint64_t header_bytes = RoundUp(sizeof(wire::ArenaHeader));
  if (limit_bytes < 2 * header_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "host-memory: ", ByteText(limit_bytes), " is less than the minimum of ",
        ByteText(2 * header_bytes)));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<wire::Arena> arena,
                   wire::Arena::Create(limit_bytes, worker_count));
  return std::unique_ptr<HostArena>(
      new HostArena(std::move(arena), limit_bytes, header_bytes, pages));
}

absl::StatusOr<uint64_t> HostArena::FindGap(uint64_t bytes) const {
  uint64_t end = 0;
  for (const auto& [offset, range] : allocations_) {
    if (offset - end >= bytes) return end;
    end = offset + range.bytes;
  }
  if (arena_->size_bytes() - end >= bytes) return end;
  return absl::ResourceExhaustedError("");
}

uint64_t HostArena::largest_gap_bytes() const {
  uint64_t largest = 0;
  uint64_t end = 0;
  for (const auto& [offset, range] : allocations_) {
    largest = std::max(largest, offset - end);
    end = offset + range.bytes;
  }
  return std::max(largest, arena_->size_bytes() - end);
}

absl::StatusOr<uint64_t> HostArena::Allocate(uint64_t bytes) {
  const uint64_t size = RoundUp(bytes == 0 ? 1 : bytes);
  const absl::StatusOr<uint64_t> offset = FindGap(size);
  if (bytes > limit_bytes_ || !offset.ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("host memory: ", ByteText(bytes), " wanted, ",
                     ByteText(limit_bytes_ - used_bytes_), " of ",
                     ByteText(limit_bytes_), " are free (--host-memory)"));
  }
  RETURN_IF_ERROR(pages_.Add(*offset, size));
  allocations_[*offset] = {size};
  used_bytes_ += size;
  return *offset;
}

void HostArena::Forget(uint64_t offset) {
  const auto found = allocations_.find(offset);
  used_bytes_ -= found->second.bytes;
  allocations_.erase(found);
}

void HostArena::Free(uint64_t offset) {
  const auto found = allocations_.find(offset);
  ROUNDHOUSE_CHECK(offset != 0 && found != allocations_.end() &&
                   !found->second.freeing)
      << offset;
  if (pages_.Clean(offset, found->second.bytes, [this, offset] {
        --freeing_count_;
        Forget(offset);
        freed_();
      })) {
    return Forget(offset);
  }
  found->second.freeing = true;
  ++freeing_count_;
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
