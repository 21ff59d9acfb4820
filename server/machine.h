// What the machine has for a daemon that starts: GPUs, descriptors, the right
// to go before others; and what its workers are told of that.
//
// Blocks on the driver, for as long as --gpu-probe-seconds.  The thread of
// main.
#ifndef ROUNDHOUSE_SERVER_MACHINE_H_
#define ROUNDHOUSE_SERVER_MACHINE_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/wire/peers.h"
#include "server/daemon_options.h"
#include "server/workers/process_pool.h"

namespace roundhouse {

// With --devices=cuda: which GPUs the devices are, and what follows from that
// in `options`.  What somebody else has of the memory of `lent` ones, by uuid,
// counts as free: they come back when it is.  RunDaemon's errors.
absl::StatusOr<std::vector<wire::Gpu>> FindGpus(
    DaemonOptions& options, const std::set<std::string>& lent);

// To the hard limit; says so where that is low.
void RaiseDescriptors();

// Puts the loop's thread, which this is, before threads that compute; false:
// nor need workers.
bool GoBeforeCompute(const DaemonOptions& options);

// Whether devices exchange sums.  kInvalidArgument: they are told to and can't.
absl::StatusOr<bool> UsesPeers(const DaemonOptions& options,
                               const std::vector<wire::Gpu>& gpus);

// kInvalidArgument: --worker-kill-at names no worker.
absl::StatusOr<ProcessPoolOptions> PoolOptions(const DaemonOptions& options,
                                               int lock_fd);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_MACHINE_H_
