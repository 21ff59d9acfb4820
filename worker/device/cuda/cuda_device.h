// A Device that is a GPU, through the CUDA runtime: memory from the device's
// default pool, streams that wait for none but themselves, events that a thread
// sleeps for.
//
// Memory comes from a stream-ordered pool (cudaMallocFromPoolAsync) and not
// from one block that we cut up: worker/slot grants memory by counting bytes,
// and a block in pieces would refuse what the count allows.  It is grown to the
// limit when the device is opened and shrinks to less only when it cannot serve
// what the count allows.  The default pool, because
// LibTorch's allocator (PYTORCH_ALLOC_CONF=backend:cudaMallocAsync) takes its
// memory there, too: what the one frees the other can have.
//
// Copies read and write any host memory; where PinHost did not register it with
// CUDA they are slower, and the calling thread takes part in them.
#ifndef ROUNDHOUSE_WORKER_DEVICE_CUDA_CUDA_DEVICE_H_
#define ROUNDHOUSE_WORKER_DEVICE_CUDA_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

struct CudaDeviceOptions {
  int index = 0;              // among those that CUDA_VISIBLE_DEVICES leaves
  uint64_t memory_bytes = 0;  // the limit of all buffers together, > 0
  // How long opening waits for memory that the driver does not have yet.
  absl::Duration max_open_wait = absl::Seconds(5);
};

// Opens the device, in a process that was not forked after it opened one, and
// measures its link (Device::link_bandwidth) where it has 64 MiB. Blocks for
// the driver's start, seconds at worst. FAILED_PRECONDITION: no driver, too old
// a driver, no such device, or one that this build has no code for.
// RESOURCE_EXHAUSTED naming the bytes: the device has less memory free than the
// limit, and still has after max_open_wait. ABORTED: the device is lost.
absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(
    const CudaDeviceOptions& options);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_CUDA_CUDA_DEVICE_H_
