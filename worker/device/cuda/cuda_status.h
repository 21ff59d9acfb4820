// What an error of the CUDA runtime means to a worker.
#ifndef ROUNDHOUSE_WORKER_DEVICE_CUDA_CUDA_STATUS_H_
#define ROUNDHOUSE_WORKER_DEVICE_CUDA_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include <string>

#include "absl/status/status.h"

namespace roundhouse::worker {

// OK, or `what` failed, with CUDA's name, number and text:
//   ABORTED              "device is lost": this process can use it no more
//   RESOURCE_EXHAUSTED   the device's memory is full; the device goes on
//   FAILED_PRECONDITION  the driver, the device or this build does not serve
//   INTERNAL             anything else: a call that should not have been made
// The calling thread's error is cleared, so that no later check by other code
// (LibTorch's kernel launches) finds it.  Needs no driver.
absl::Status CudaStatus(cudaError_t error, const std::string& what);

// The same of a call that opens the device, or whose own fault the system's
// error may be: a device that is not there, which an open one says when it fell
// off its bus, and that error are FAILED_PRECONDITION here.
absl::Status CudaOpenStatus(cudaError_t error, const std::string& what);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_CUDA_CUDA_STATUS_H_
