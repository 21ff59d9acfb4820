// Memory of one device, from its default pool, which is LibTorch's, too.
#ifndef ROUNDHOUSE_WORKER_DEVICE_CUDA_MEMORY_POOL_H_
#define ROUNDHOUSE_WORKER_DEVICE_CUDA_MEMORY_POOL_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace roundhouse::worker {

// Its own stream carries nothing but allocations and frees, so what was freed
// can be used at once, and waiting for it waits for no work.  Thread-safe.
class MemoryPool {
 public:
  // Open waits `max_wait` at most.
  MemoryPool(int device, absl::Duration max_wait)
      : device_(device), max_wait_(max_wait) {}
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Once, before anything else, on a thread whose device it is: takes `bytes`
  // from the driver, which stay with the pool.  RESOURCE_EXHAUSTED: there are
  // not as many.
  absl::Status Open(uint64_t bytes);

  // For any stream.  Waits for no work but allocations and frees.
  // RESOURCE_EXHAUSTED naming `what`, with what there is; ABORTED: the device
  // is lost.
  absl::StatusOr<std::byte*> Allocate(uint64_t bytes, const std::string& what);
  void Free(std::byte* data);

 private:
  absl::Status Set(cudaMemPoolAttr attribute, void* value);
  absl::StatusOr<uint64_t> Get(cudaMemPoolAttr attribute);
  absl::StatusOr<std::byte*> AllocateAll(uint64_t bytes);
  absl::Status Trim();
  absl::Status Refused(cudaError_t error, uint64_t bytes,
                       const std::string& what);

  const int device_;
  const absl::Duration max_wait_;
  cudaStream_t stream_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_CUDA_MEMORY_POOL_H_
