// Where the arena's pages come from, as far as the system can be asked: huge
// ones, and all NUMA nodes alike.  Every device reads the same weights, so no
// node is the right one for them, and each node's memory should carry its
// share.
#ifndef ROUNDHOUSE_SERVER_ARENA_ARENA_PLACEMENT_H_
#define ROUNDHOUSE_SERVER_ARENA_ARENA_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/cpu_list.h"

namespace roundhouse {

inline constexpr char kSharedHugePages[] =
    "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

// Whether shared memory gets huge pages where it asks for them, and not
// otherwise.
bool HugePagesOnAdvice(const std::string& setting = kSharedHugePages);

// Pages of [memory, memory + bytes) that are made from now on come from all
// nodes with memory in turn, whichever process makes them.  Nothing to do where
// there is one node.  REQUIRES: a mapping of shared memory.
absl::Status SpreadOverNodes(std::byte* memory, uint64_t bytes,
                             const std::string& nodes = kNumaNodes);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ARENA_ARENA_PLACEMENT_H_
