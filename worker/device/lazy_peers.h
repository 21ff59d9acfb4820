// The peers of a LazyDevice: sockets, as a CPU device's, but an Exchange is
// work of the stream, done when somebody waits for it.  As on a GPU, one that
// waits for a member that does not come holds up its stream.
#ifndef ROUNDHOUSE_WORKER_DEVICE_LAZY_PEERS_H_
#define ROUNDHOUSE_WORKER_DEVICE_LAZY_PEERS_H_

#include <memory>

#include "worker/device/injected_loss.h"
#include "worker/device/peers.h"

namespace roundhouse::worker {

// For streams of such a device only.  `loss` is the device's, which outlives
// it.
std::unique_ptr<PeerLink> NewLazyPeers(const InjectedLoss& loss);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_LAZY_PEERS_H_
