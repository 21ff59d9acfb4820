// Sockets between the processes of a PeerGroup: one stream between any two.
//
// Each member listens under an abstract name that is made of the id and its
// rank; of two, the one with the higher rank calls the other and says who it
// is.  Anybody on the machine can read such names (/proc/net/unix), so both
// sides ask the kernel whose process the other one is, and who calls shows the
// part of the id that is in no name.
#ifndef ROUNDHOUSE_WORKER_DEVICE_CPU_SOCKET_MESH_H_
#define ROUNDHOUSE_WORKER_DEVICE_CPU_SOCKET_MESH_H_

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files/descriptor.h"
#include "worker/device/peers.h"

namespace roundhouse::worker {

// Where a member listens while it joins; without the zero byte before it.
std::string PeerSocketName(const PeerGroupId& id, int rank);

// What a member says when it calls another one.
std::string PeerHello(const PeerGroupId& id, int rank, int size);

// The sockets to the other members, by rank; this one's is none.  Blocking, and
// errors, as PeerLink::Join.
absl::StatusOr<std::vector<Descriptor>> ConnectPeers(
    const PeerGroupId& id, int rank, int size,
    const std::atomic<bool>& given_up);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_CPU_SOCKET_MESH_H_
