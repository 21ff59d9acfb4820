#include "worker/device/cuda/memory_pool.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/cuda/current_device.h"

namespace roundhouse::worker {
namespace {

// For the limit's memory, when the device is opened.
constexpr absl::Duration kAskAgainEvery = absl::Milliseconds(10);

// The pool keeps this much beyond the limit: at the limit itself it would give
// back and take anew without end.
constexpr uint64_t kPoolMayGrow = uint64_t{256} << 20;

}  // namespace

MemoryPool::~MemoryPool() {
  if (stream_ != nullptr) {
    OnDevice(device_, [this] { return cudaStreamDestroy(stream_); });
  }
}

absl::Status MemoryPool::Open(uint64_t bytes) {
  RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                 "cudaStreamCreateWithFlags"));
  RETURN_IF_ERROR(CudaStatus(cudaDeviceGetDefaultMemPool(&pool_, device_),
                             "cudaDeviceGetDefaultMemPool"));
  // Else memory that LibTorch freed in a stream would come back with a wait
  // for that stream's work in it.  LibTorch sets both; whoever prepares it
  // sets them back (worker/model/cuda/on_cuda.cc).
  int dependencies = 0;
  RETURN_IF_ERROR(
      Set(cudaMemPoolReuseAllowInternalDependencies, &dependencies));
  ASSIGN_OR_RETURN(std::byte* const all, AllocateAll(bytes));
  Free(all);
  // Else every wait for an event would give free memory back to the driver.
  // What a pool in pieces grows by goes back.
  ASSIGN_OR_RETURN(uint64_t threshold, Get(cudaMemPoolAttrReservedMemCurrent));
  threshold += kPoolMayGrow;
  return Set(cudaMemPoolAttrReleaseThreshold, &threshold);
}

absl::StatusOr<std::byte*> MemoryPool::Allocate(uint64_t bytes,
                                                const std::string& what) {
  RETURN_IF_ERROR(MakeCurrent(device_));
  void* data = nullptr;
  cudaError_t error = cudaMallocFromPoolAsync(&data, bytes, pool_, stream_);
  if (error == cudaErrorMemoryAllocation) {
    RETURN_IF_ERROR(Trim());
    error = cudaMallocFromPoolAsync(&data, bytes, pool_, stream_);
  }
  if (error != cudaSuccess) return Refused(error, bytes, what);
  // Any stream may use it from here on.
  const absl::Status there =
      CudaStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  if (!there.ok()) {
    Free(static_cast<std::byte*>(data));
    return there;
  }
  return static_cast<std::byte*>(data);
}

void MemoryPool::Free(std::byte* data) {
  OnDevice(device_, [&] { return cudaFreeAsync(data, stream_); });
}

absl::Status MemoryPool::Set(cudaMemPoolAttr attribute, void* value) {
  return CudaStatus(cudaMemPoolSetAttribute(pool_, attribute, value),
                    "cudaMemPoolSetAttribute");
}

absl::StatusOr<uint64_t> MemoryPool::Get(cudaMemPoolAttr attribute) {
  uint64_t value = 0;
  RETURN_IF_ERROR(CudaStatus(cudaMemPoolGetAttribute(pool_, attribute, &value),
                             "cudaMemPoolGetAttribute"));
  return value;
}

// The driver takes back what a worker that died had some time after that.
absl::StatusOr<std::byte*> MemoryPool::AllocateAll(uint64_t bytes) {
  const int64_t deadline_ns =
      MonotonicNs() + absl::ToInt64Nanoseconds(max_wait_);
  while (true) {
    absl::StatusOr<std::byte*> all = Allocate(bytes, "--device-memory");
    if (!absl::IsResourceExhausted(all.status()) ||
        MonotonicNs() >= deadline_ns) {
      return all;
    }
    absl::SleepFor(kAskAgainEvery);
  }
}

// Pieces that nobody uses go back to the driver, which can join them: those
// whose free the host has seen.
absl::Status MemoryPool::Trim() {
  cudaGetLastError();
  RETURN_IF_ERROR(
      CudaStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"));
  return CudaStatus(cudaMemPoolTrimTo(pool_, 0), "cudaMemPoolTrimTo");
}

absl::Status MemoryPool::Refused(cudaError_t error, uint64_t bytes,
                                 const std::string& what) {
  const absl::Status status = CudaStatus(error, "cudaMallocFromPoolAsync");
  if (!absl::IsResourceExhausted(status)) return status;
  ASSIGN_OR_RETURN(const uint64_t used, Get(cudaMemPoolAttrUsedMemCurrent));
  ASSIGN_OR_RETURN(const uint64_t reserved,
                   Get(cudaMemPoolAttrReservedMemCurrent));
  size_t free = 0;
  size_t total = 0;
  RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  return absl::ResourceExhaustedError(absl::StrCat(
      "device memory: ", what, " wants ", bytes, " bytes; the driver has ",
      free, " of ", total, " free, the pool has ", reserved, ", of which ",
      used, " are in use: ", status.message()));
}

}  // namespace roundhouse::worker
