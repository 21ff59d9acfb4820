// Peers of a device whose memory is host memory and whose streams work at once:
// bytes go through sockets (socket_mesh.h), and an Exchange returns when they
// have.  Nothing is ever left on a stream.
#ifndef ROUNDHOUSE_WORKER_DEVICE_CPU_SOCKET_PEERS_H_
#define ROUNDHOUSE_WORKER_DEVICE_CPU_SOCKET_PEERS_H_

#include <memory>

#include "worker/device/injected_loss.h"
#include "worker/device/peers.h"

namespace roundhouse::worker {

// `loss` is the device's, which outlives it.
std::unique_ptr<PeerLink> NewSocketPeers(const InjectedLoss& loss);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_CPU_SOCKET_PEERS_H_
