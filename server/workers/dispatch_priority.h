// Threads that slots pass through go before threads that compute.
//
// Every slot passes the daemon's loop and the message loop of its device's
// worker.  They do little at a time, and a device may wait for it, while
// reductions, updates and CPU devices keep cores busy for milliseconds at a
// time: beside those an ordinary thread waits for its turn.
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_WORKERS_DISPATCH_PRIORITY_H_
#define ROUNDHOUSE_SERVER_WORKERS_DISPATCH_PRIORITY_H_

#include <sys/types.h>

#include "absl/status/status.h"

namespace roundhouse {

// Their real-time priorities (SCHED_RR), the least that Linux has: the loop's
// work lets several workers go on.
enum class DispatchThread { kWorker = 1, kLoop = 2 };

// Acts on the thread with this id, 0: the calling one. The threads and
// processes that it starts are ordinary. NOT_FOUND: there is no such thread.
// PERMISSION_DENIED: the process has none of what permits it. These are root,
// CAP_SYS_NICE, and a high enough limit of real-time priorities (RLIMIT_RTPRIO,
// LimitRTPRIO= of systemd).
absl::Status PutBeforeCompute(pid_t thread, DispatchThread which);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WORKERS_DISPATCH_PRIORITY_H_
