// What main hands to a worker's role: its socket, the mapped arena, and who it
// is.  Owner: main; outlives the role.
#ifndef ROUNDHOUSE_WORKER_CONTEXT_H_
#define ROUNDHOUSE_WORKER_CONTEXT_H_

#include "base/wire/arena.h"
#include "base/wire/channel.h"

namespace roundhouse::worker {

// A role runs on main's thread until Stop (returns OK) or until the daemon is
// gone (UNAVAILABLE).  It says Hello first and sends its own heartbeats
// (worker/outbox.h has both for whoever wants them).  `channel` is received
// from by the role's thread only.
struct WorkerContext {
  wire::Channel& channel;
  wire::Arena& arena;
  int index = 0;    // of the doorbell in arena.doorbells()
  int threads = 1;  // compute threads; part of the bits
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_CONTEXT_H_
