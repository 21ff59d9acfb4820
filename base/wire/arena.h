// The host arena as one process sees it: a memfd, mapped shared.
//
// The daemon creates it and decides what lies where (server/arena);
// workers map the descriptor they inherit.  At() always checks bounds: a wrong
// offset is a bug, not an error.
// Thread-compatible; the bytes follow the rules of base/wire/words.h.
#ifndef ROUNDHOUSE_BASE_WIRE_ARENA_H_
#define ROUNDHOUSE_BASE_WIRE_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "base/wire/layout.h"

namespace roundhouse::wire {

class Arena {
 public:
  // Makes a sparse memfd of `size_bytes` (rounded up to a page) with its
  // header.  Pages are reserved by server/arena, not here.
  static absl::StatusOr<std::unique_ptr<Arena>> Create(uint64_t size_bytes,
                                                       uint32_t worker_count);
  // Maps an inherited descriptor (taken over) and checks its header.
  static absl::StatusOr<std::unique_ptr<Arena>> Map(int fd);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int fd() const { return fd_; }
  uint64_t size_bytes() const { return size_bytes_; }
  std::byte* base() const { return base_; }
  ArenaHeader& header() const { return *At<ArenaHeader>(0); }
  DoorbellTable& doorbells() const { return header().doorbells; }

  // The `count` values of T at `offset`.
  // REQUIRES: inside the arena and aligned for T (checked).
  template <typename T>
  T* At(uint64_t offset, uint64_t count = 1) const {
    ROUNDHOUSE_CHECK(offset <= size_bytes_ &&
                     count <= (size_bytes_ - offset) / sizeof(T) &&
                     offset % alignof(T) == 0)
        << "offset " << offset << " count " << count << " of " << sizeof(T)
        << " bytes in an arena of " << size_bytes_;
    return reinterpret_cast<T*>(base_ + offset);
  }
  std::byte* Bytes(const BufferRef& buffer) const {
    return At<std::byte>(buffer.offset, buffer.bytes);
  }
  Word& WordAt(uint64_t offset) const { return *At<Word>(offset); }

 private:
  Arena(int fd, std::byte* base, uint64_t size_bytes)
      : fd_(fd), base_(base), size_bytes_(size_bytes) {}

  const int fd_;
  std::byte* const base_;
  const uint64_t size_bytes_;
};

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_ARENA_H_
