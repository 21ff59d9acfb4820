// The calling thread's current device.
#ifndef ROUNDHOUSE_WORKER_DEVICE_CUDA_CURRENT_DEVICE_H_
#define ROUNDHOUSE_WORKER_DEVICE_CUDA_CURRENT_DEVICE_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "worker/device/cuda/cuda_status.h"

namespace roundhouse::worker {

// CUDA's current device belongs to the thread; one that has none would get
// device 0, and a context there, with its first call of any kind.
inline absl::Status MakeCurrent(int index) {
  return CudaStatus(cudaSetDevice(index), "cudaSetDevice");
}

// What a destructor calls: it has nobody to tell. If the device is lost, the
// next call that returns a status says so.
template <typename Call>
void OnDevice(int index, Call call) {
  if (MakeCurrent(index).ok() && call() != cudaSuccess) cudaGetLastError();
}

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_CUDA_CURRENT_DEVICE_H_
