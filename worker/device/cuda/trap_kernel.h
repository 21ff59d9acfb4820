// The device code of Stream::BreakDevice: for tests of what becomes of a worker
// whose GPU fails.
#ifndef ROUNDHOUSE_WORKER_DEVICE_CUDA_TRAP_KERNEL_H_
#define ROUNDHOUSE_WORKER_DEVICE_CUDA_TRAP_KERNEL_H_

#include <cuda_runtime_api.h>

namespace roundhouse::worker {

// Queues one thread that traps.  From then on every call of this process for
// the device fails ("the process must be terminated and relaunched").  Nothing
// of it is loaded before.
// REQUIRES: the stream's device is the thread's current one.
cudaError_t LaunchTrap(cudaStream_t stream);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_CUDA_TRAP_KERNEL_H_
