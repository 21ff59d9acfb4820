// The peers of a CudaDevice, through NCCL: an Exchange is one kernel on the
// stream, which waits for those of the other members.
//
// A communicator never blocks its caller: what a call begins NCCL's own threads
// do, and we look how far they are.  So a member that does not come, or dies,
// holds nobody up who was told so.  ncclCommAbort frees the communicator, which
// therefore is touched by one thread at a time, and by none after that.  Every
// member that is left has to abort, since one's kernels may use another one's
// buffers.  Where ncclCommAbort itself does not come back, the device is as
// good as lost: ABORTED, or, in a group's destructor, the process ends with
// status 1.
//
// A kernel that is loaded with its first launch may have to wait until NCCL's
// are done.  Nobody waits in a circle for that: all members are told of an
// exchange once the sums of all are there, any two of them do theirs in one
// order, and what an exchange launches beside NCCL's own kernels was loaded
// when the device was opened (LoadFloatKernels).
//
// Whether the GPUs can read each other's memory at all is not asked here: where
// they cannot, NCCL goes through host memory.  What it takes of the device's
// memory is not counted.
#ifndef ROUNDHOUSE_WORKER_DEVICE_CUDA_CUDA_PEERS_H_
#define ROUNDHOUSE_WORKER_DEVICE_CUDA_CUDA_PEERS_H_

#include <memory>

#include "absl/time/time.h"
#include "worker/device/peers.h"

namespace roundhouse::worker {

// How long the end of a group may take.
inline constexpr absl::Duration kMaxPeerAbort = absl::Seconds(30);

// `device` is CUDA's index of the device.
std::unique_ptr<PeerLink> NewCudaPeers(
    int device, absl::Duration max_abort = kMaxPeerAbort);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_CUDA_CUDA_PEERS_H_
