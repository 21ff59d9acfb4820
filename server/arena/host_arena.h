// The daemon's side of the host arena: which bytes belong to whom.
//
// Allocations are page-aligned ranges of the memfd (base/wire/arena.h).  Their
// pages are reserved before a worker is told of them, so that none can fail on
// a page fault later; ArenaPages says when, and what becomes of them.  First
// fit by offset.  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_ARENA_HOST_ARENA_H_
#define ROUNDHOUSE_SERVER_ARENA_HOST_ARENA_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "base/wire/arena.h"
#include "server/arena/arena_pages.h"

namespace roundhouse {

class HostArena {
 public:
  // `limit_bytes` is the host memory the daemon may use (--host-memory); the
  // header's pages come out of it.
  static absl::StatusOr<std::unique_ptr<HostArena>> Create(
      uint64_t limit_bytes, uint32_t worker_count,
      const ArenaPagesOptions& pages = {});

  // The offset of `bytes` zeroed bytes, aligned to a page, which the caller may
  // write, and workers once pages() is ready.  RESOURCE_EXHAUSTED names the
  // bytes wanted, free and the limit; nothing is taken then.
  absl::StatusOr<uint64_t> Allocate(uint64_t bytes);
  // Large ranges are used until their pages are given back or cleared.
  // REQUIRES: `offset` came from Allocate and was not freed (checked).
  void Free(uint64_t offset);
  // Calls `freed` when a range is free that was not so when Free returned.
  void OnFreedLater(std::function<void()> freed) { freed_ = std::move(freed); }
  bool frees_later() const { return freeing_count_ > 0; }

  ArenaPages& pages() { return pages_; }

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t used_bytes() const { return used_bytes_; }
  // In how many pieces ever.
  uint64_t free_bytes() const {
    return used_bytes_ < limit_bytes_ ? limit_bytes_ - used_bytes_ : 0;
  }
  // Allocations of together that many bytes, each rounded up to pages, succeed.
  uint64_t largest_gap_bytes() const;
  wire::Arena& arena() { return *arena_; }

 private:
  HostArena(std::unique_ptr<wire::Arena> arena, uint64_t limit_bytes,
            uint64_t header_bytes, const ArenaPagesOptions& pages);

  struct Range {
    uint64_t bytes = 0;
    bool freeing = false;
  };

  absl::StatusOr<uint64_t> FindGap(uint64_t bytes) const;
  void Forget(uint64_t offset);

  const std::unique_ptr<wire::Arena> arena_;
  const uint64_t limit_bytes_;
  uint64_t used_bytes_;
  std::map<uint64_t, Range> allocations_;  // by offset
  int freeing_count_ = 0;
  std::function<void()> freed_ = [] {};
  ArenaPages pages_;
};

// Frees its range when it dies.  Move-only; the arena outlives it.
class ArenaRange {
 public:
  ArenaRange() = default;
  static absl::StatusOr<ArenaRange> Allocate(HostArena& arena, uint64_t bytes);
  ArenaRange(ArenaRange&& other) noexcept { *this = std::move(other); }
  ArenaRange& operator=(ArenaRange&& other) noexcept;
  ~ArenaRange();

  uint64_t offset() const { return offset_; }
  uint64_t bytes() const { return bytes_; }

 private:
  HostArena* arena_ = nullptr;
  uint64_t offset_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ARENA_HOST_ARENA_H_
