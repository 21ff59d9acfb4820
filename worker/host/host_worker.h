// The host role: gradient reduction, the optimizer and the embedding's rows, on
// arena memory (docs/design/daemon.md).  One process per daemon; disposable:
// it may die at any instruction, and its successor, given the same operation
// again, ends with the same bits (worker/host/journal.h).
#ifndef ROUNDHOUSE_WORKER_HOST_HOST_WORKER_H_
#define ROUNDHOUSE_WORKER_HOST_HOST_WORKER_H_

#include "absl/status/status.h"
#include "worker/context.h"

namespace roundhouse::worker {

// Jobs configured at one time.
inline constexpr size_t kMaxHostJobs = 256;

// Says Hello, then does operations one after the other in the order received
// until Stop (OK) or until the daemon is gone (UNAVAILABLE).  Each HostOp is
// answered by HostOpDone or Failed, each ConfigureJob by JobConfigured or
// Failed, with the command's attempt.  A Stop during an operation ends it only
// where it waits for a word.
absl::Status RunHostWorker(const WorkerContext& context);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_HOST_WORKER_H_
