// How the daemon asks a nursery (worker/nursery.h) for a process: one datagram
// with the flags and the descriptors, one back with the process id.  Both ends
// of a SOCK_SEQPACKET pair.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_BASE_WIRE_SPAWN_H_
#define ROUNDHOUSE_BASE_WIRE_SPAWN_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roundhouse::wire {

// The most bytes of all arguments together, with one more byte for each.
inline constexpr size_t kMaxSpawnBytes = 4096;
inline constexpr size_t kMaxSpawnDescriptors = 8;

struct SpawnRequest {
  std::vector<std::string> arguments;  // without the program's name
  std::vector<int> descriptors;        // 1, 2, 3 ... in the new process
};

// Never blocks.  UNAVAILABLE: the peer is gone.  RESOURCE_EXHAUSTED: it has not
// read what it was sent.  INVALID_ARGUMENT: over the limits, no argument, or a
// zero byte in one.
absl::Status SendSpawn(int fd, const SpawnRequest& request);

// Blocks.  The descriptors are the caller's to close, close-on-exec.
// UNAVAILABLE: the peer is gone.  INVALID_ARGUMENT: no request.
absl::StatusOr<SpawnRequest> ReceiveSpawn(int fd);

// UNAVAILABLE: the peer is gone.
absl::Status SendSpawned(int fd, pid_t pid);

// Never blocks.  RESOURCE_EXHAUSTED: nothing there yet.  UNAVAILABLE: the peer
// is gone.  INVALID_ARGUMENT: no process id.
absl::StatusOr<pid_t> TryReceiveSpawned(int fd);

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_SPAWN_H_
