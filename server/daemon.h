// The composition root of roundhoused: lock, store, arena, workers, engine,
// API, metrics, in that order, and the way back on SIGTERM.
#ifndef ROUNDHOUSE_SERVER_DAEMON_H_
#define ROUNDHOUSE_SERVER_DAEMON_H_

#include "absl/status/status.h"
#include "server/daemon_options.h"

namespace roundhouse {

// A running step and its checkpoint get this long after SIGTERM; then the
// daemon stops without (and goes on from the last checkpoint).
inline constexpr absl::Duration kDrainLimit = absl::Minutes(10);

// Serves until SIGTERM or SIGINT; OK when it stopped in order.  Blocks the
// calling thread, which becomes the event loop's.
// FAILED_PRECONDITION: another daemon, or a worker of a dead one, still holds
// the state directory; or the GPUs of --devices=cuda cannot be used: no driver,
// a lost one by name, a worker that cannot open its own (found when its worker
// starts, just after the API does).  DEADLINE_EXCEEDED: the driver hangs.
absl::Status RunDaemon(const DaemonOptions& options);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DAEMON_H_
