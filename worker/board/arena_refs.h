// Checks of what a command says lies in the arena.  Pure.
#ifndef ROUNDHOUSE_WORKER_BOARD_ARENA_REFS_H_
#define ROUNDHOUSE_WORKER_BOARD_ARENA_REFS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/wire/layout.h"

namespace roundhouse::worker {

// INVALID_ARGUMENT naming `name`, unless the buffer has `want` bytes, lies in
// an arena of `arena_bytes` and is aligned as device buffers are.
absl::Status CheckBuffer(uint64_t arena_bytes, const wire::BufferRef& buffer,
                         uint64_t want, const std::string& name);

// The same check for a word; offset 0, which means none, passes.
absl::Status CheckWord(uint64_t arena_bytes, const wire::WordRef& word,
                       const std::string& name);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_ARENA_REFS_H_
