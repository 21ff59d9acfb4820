// CUDA's runtime on host memory, as far as CudaDevice calls it, linked in place
// of CUDA's own: so that CudaDevice runs where there is no GPU.
//
// It is as lazy as CUDA may be: a stream's work is done when somebody waits for
// it, memory is there when its allocation was waited for.  What would be
// undefined on a GPU ends the process (ROUNDHOUSE_CHECK): a copy into memory
// that is not there, a call with another device current.  A copy from or to
// host memory of which a part is registered is refused.  Kernels are
// functions; it says nothing about device code or speed.
//
// Thread-safe.
#ifndef ROUNDHOUSE_WORKER_DEVICE_CUDA_FAKE_CUDART_H_
#define ROUNDHOUSE_WORKER_DEVICE_CUDA_FAKE_CUDART_H_

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <functional>

#include "worker/device/pinned_ranges.h"

namespace roundhouse::worker {

struct FakeCudart {
  // The device that all calls must be for, of kDevices.
  static constexpr int kDevices = 2;
  static constexpr int kDevice = 1;

  std::atomic<uint64_t> driver_bytes{256 << 20};  // what the device has in all
  // Free, but in pieces until the pool is trimmed with no free under way.
  std::atomic<uint64_t> scattered_bytes{0};
  std::atomic<int> refusals{0};  // allocations that are refused next
  std::atomic<cudaError_t> lost{cudaSuccess};     // every call returns it
  std::atomic<cudaError_t> kernels{cudaSuccess};  // loading them returns it
  std::atomic<int> events_made{0};
  std::atomic<uint64_t> release_threshold{0};  // of the pool
  // Made and not destroyed or freed.
  std::atomic<int> objects{0};
  std::atomic<uint64_t> allocated_bytes{0};
  std::atomic<uint64_t> reserved_bytes{0};  // the most that the pool had
  std::atomic<int> frees_under_way{0};
  PinnedRanges registered;  // host memory
};

// What the fake does and counts.
FakeCudart& Cudart();

// Queues a kernel that waits for others: `work` is called again and again until
// it says that it is done.  It calls nothing of CUDA.
cudaError_t QueueFakeKernel(cudaStream_t stream, std::function<bool()> work);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_CUDA_FAKE_CUDART_H_
