// The files role: loads, first weights, checkpoints, a job's export (FileOp)
// and those that people ask for (MergeRows), apart from the host role so that a
// save never stalls a step (docs/design/daemon.md). Disposable: an operation
// may be killed anywhere and sent to a successor.
#ifndef ROUNDHOUSE_WORKER_FILES_FILES_WORKER_H_
#define ROUNDHOUSE_WORKER_FILES_FILES_WORKER_H_

#include "absl/status/status.h"
#include "worker/context.h"

namespace roundhouse::worker {

// Says Hello, then does FileOps and MergeRows one after the other in the order
// received until Stop (OK; what was asked before it is finished) or until the
// daemon is gone (UNAVAILABLE).  Each is answered by FileOpDone or Failed with
// the command's attempt.  A file too large for the process's limit is an error
// like a full disk: SIGXFSZ is ignored from here on.
absl::Status RunFilesWorker(const WorkerContext& context);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_FILES_FILES_WORKER_H_
