#include "worker/device/cuda/fake_cudart.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "base/convert.h"
#include "base/log.h"
#include "base/mutex.h"
#include "worker/device/cuda/float_kernels.h"
#include "worker/device/cuda/trap_kernel.h"

struct CUstream_st {
  std::deque<std::function<bool()>> work;  // false: it is not done yet
  uint64_t done = 0;                       // of all work ever queued
};

struct CUevent_st {
  CUstream_st* stream = nullptr;
  uint64_t position = 0;  // of the stream's work
  bool timed = false;
};

struct CUmemPoolHandle_st {};

namespace roundhouse::worker {
namespace {

constexpr size_t kPageBytes = 4096;

struct Block {
  size_t bytes = 0;
  bool there = false;
};

Mutex mutex;
std::map<std::byte*, Block> blocks ABSL_GUARDED_BY(mutex);
thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Return(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// What every call on the device begins with.
cudaError_t Begin() {
  ROUNDHOUSE_CHECK(current_device == FakeCudart::kDevice)
      << "device " << current_device << " is current";
  return Return(Cudart().lost);
}

// Whether all of it is done.
bool Run(CUstream_st& stream, uint64_t position)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  while (stream.done < position && !stream.work.empty()) {
    if (!stream.work.front()()) return false;
    stream.work.pop_front();
    ++stream.done;
  }
  return true;
}

// A lost device does no more.
void RunToTheEnd(CUstream_st& stream, uint64_t position) {
  while (Cudart().lost == cudaSuccess) {
    {
      MutexLock lock(mutex);
      if (Run(stream, position)) return;
    }
    std::this_thread::yield();
  }
}

void CheckThere(const void* data, size_t bytes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  auto* const begin =
      const_cast<std::byte*>(static_cast<const std::byte*>(data));
  auto block = blocks.upper_bound(begin);
  ROUNDHOUSE_CHECK(block != blocks.begin()) << "no device memory";
  --block;
  ROUNDHOUSE_CHECK(begin + bytes <= block->first + block->second.bytes)
      << "no device memory";
  ROUNDHOUSE_CHECK(block->second.there) << "not allocated yet";
}

cudaError_t Queue(cudaStream_t stream, std::function<void()> work) {
  const cudaError_t error = Begin();
  if (error != cudaSuccess) return error;
  MutexLock lock(mutex);
  stream->work.push_back([work = std::move(work)] {
    work();
    return true;
  });
  return cudaSuccess;
}

cudaError_t QueueRounding(DType dtype, uint16_t* to, const float* from,
                          int64_t count, cudaStream_t stream) {
  return Queue(stream, [=]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    CheckThere(to, count * sizeof(uint16_t));
    CheckThere(from, count * sizeof(float));
    FromF32(dtype, from, to, static_cast<uint64_t>(count));
  });
}

cudaError_t QueueWidening(DType dtype, float* to, const uint16_t* from,
                          int64_t count, cudaStream_t stream) {
  return Queue(stream, [=]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    CheckThere(to, count * sizeof(float));
    CheckThere(from, count * sizeof(uint16_t));
    ToF32(dtype, from, to, static_cast<uint64_t>(count));
  });
}

template <typename T>
cudaError_t Make(T** made) {
  const cudaError_t error = Begin();
  if (error != cudaSuccess) return error;
  *made = new T;
  ++Cudart().objects;
  return cudaSuccess;
}

template <typename T>
cudaError_t Destroy(T* object) {
  const cudaError_t error = Begin();
  delete object;
  --Cudart().objects;
  return error;
}

}  // namespace

FakeCudart& Cudart() {
  static FakeCudart cudart;
  return cudart;
}

cudaError_t QueueFakeKernel(cudaStream_t stream, std::function<bool()> work) {
  const cudaError_t error = Begin();
  if (error != cudaSuccess) return error;
  MutexLock lock(mutex);
  stream->work.push_back(std::move(work));
  return cudaSuccess;
}

cudaError_t LoadFloatKernels() {
  const cudaError_t error = Begin();
  return error != cudaSuccess ? error : Return(Cudart().kernels);
}

cudaError_t LaunchAddFloats(float* to, const float* from, int64_t count,
                            cudaStream_t stream) {
  return Queue(stream, [=]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    CheckThere(to, count * sizeof(float));
    CheckThere(from, count * sizeof(float));
    for (int64_t i = 0; i < count; ++i) to[i] += from[i];
  });
}

cudaError_t LaunchRoundToBf16(uint16_t* to, const float* from, int64_t count,
                              cudaStream_t stream) {
  return QueueRounding(DType::kBF16, to, from, count, stream);
}

cudaError_t LaunchRoundToFp16(uint16_t* to, const float* from, int64_t count,
                              cudaStream_t stream) {
  return QueueRounding(DType::kF16, to, from, count, stream);
}

cudaError_t LaunchWidenBf16(float* to, const uint16_t* from, int64_t count,
                            cudaStream_t stream) {
  return QueueWidening(DType::kBF16, to, from, count, stream);
}

cudaError_t LaunchWidenFp16(float* to, const uint16_t* from, int64_t count,
                            cudaStream_t stream) {
  return QueueWidening(DType::kF16, to, from, count, stream);
}

cudaError_t LaunchTrap(cudaStream_t stream) {
  return Queue(stream, [] { Cudart().lost = cudaErrorLaunchFailure; });
}

}  // namespace roundhouse::worker

using namespace roundhouse::worker;  // NOLINT: the functions are CUDA's
using roundhouse::MutexLock;

extern "C" {

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, Cudart().lost);
}
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorFake"; }
const char* cudaGetErrorString(cudaError_t) { return "fake text"; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = FakeCudart::kDevices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  current_device = device;
  return Return(Cudart().lost);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return Begin();
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = Cudart().driver_bytes;
  *free = *total - Cudart().allocated_bytes;
  return Begin();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  ROUNDHOUSE_CHECK(flags == cudaStreamNonBlocking);
  return Make(stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  RunToTheEnd(*stream, UINT64_MAX);
  return Begin();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const cudaError_t error = Begin();
  if (error != cudaSuccess) return error;
  MutexLock lock(mutex);
  if (!Run(*stream, UINT64_MAX)) return Return(cudaErrorNotReady);
  return Return(Cudart().lost);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  RunToTheEnd(*stream, UINT64_MAX);
  return Destroy(stream);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const bool timed = flags == cudaEventDefault;
  ROUNDHOUSE_CHECK(timed ||
                   flags == (cudaEventDisableTiming | cudaEventBlockingSync));
  ++Cudart().events_made;
  const cudaError_t error = Make(event);
  if (error == cudaSuccess) (*event)->timed = timed;
  return error;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const cudaError_t error = Begin();
  if (error != cudaSuccess) return error;
  MutexLock lock(mutex);
  event->stream = stream;
  event->position = stream->done + stream->work.size();
  return cudaSuccess;
}
// A piece of work takes a millisecond.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from,
                                 cudaEvent_t to) {
  const cudaError_t error = Begin();
  if (error != cudaSuccess) return error;
  MutexLock lock(mutex);
  ROUNDHOUSE_CHECK(from->timed && to->timed && from->stream == to->stream);
  if (to->position > to->stream->done) return Return(cudaErrorNotReady);
  *milliseconds = static_cast<float>(to->position - from->position);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const cudaError_t error = Begin();
  if (error != cudaSuccess) return error;
  RunToTheEnd(*event->stream, event->position);
  return Return(Cudart().lost);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return Destroy(event); }

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  static CUmemPoolHandle_st default_pool;
  ROUNDHOUSE_CHECK(device == FakeCudart::kDevice);
  *pool = &default_pool;
  return Begin();
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute,
                                    void* value) {
  if (attribute == cudaMemPoolAttrReleaseThreshold) {
    Cudart().release_threshold = *static_cast<uint64_t*>(value);
  } else {
    ROUNDHOUSE_CHECK(attribute == cudaMemPoolReuseAllowInternalDependencies &&
                     *static_cast<int*>(value) == 0);
  }
  return Begin();
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute,
                                    void* value) {
  const bool reserved = attribute == cudaMemPoolAttrReservedMemCurrent;
  ROUNDHOUSE_CHECK(reserved || attribute == cudaMemPoolAttrUsedMemCurrent);
  *static_cast<uint64_t*>(value) =
      reserved ? Cudart().reserved_bytes : Cudart().allocated_bytes;
  return Begin();
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t keep) {
  ROUNDHOUSE_CHECK(keep == 0);
  if (Cudart().frees_under_way == 0) {
    Cudart().scattered_bytes = 0;
    Cudart().reserved_bytes = Cudart().allocated_bytes.load();
  }
  return Begin();
}

cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes, cudaMemPool_t,
                                    cudaStream_t stream) {
  const cudaError_t error = Begin();
  if (error != cudaSuccess) return error;
  FakeCudart& cudart = Cudart();
  MutexLock lock(mutex);
  const bool refused = cudart.refusals > 0 && cudart.refusals-- > 0;
  if (refused || cudart.allocated_bytes + cudart.scattered_bytes + bytes >
                     cudart.driver_bytes) {
    return Return(cudaErrorMemoryAllocation);
  }
  cudart.allocated_bytes += bytes;
  cudart.reserved_bytes =
      std::max<uint64_t>(cudart.reserved_bytes, cudart.allocated_bytes);
  auto* const block = static_cast<std::byte*>(
      std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  blocks[block] = {bytes, false};
  stream->work.push_back([block]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    blocks.at(block).there = true;
    return true;
  });
  *data = block;
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  const cudaError_t error = Begin();
  MutexLock lock(mutex);
  auto* const block = static_cast<std::byte*>(data);
  Cudart().allocated_bytes -= blocks.at(block).bytes;
  ++Cudart().frees_under_way;
  stream->work.push_back([block]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    --Cudart().frees_under_way;
    blocks.erase(block);
    std::free(block);
    return true;
  });
  return error;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToHost) {
    const void* const host = kind == cudaMemcpyHostToDevice ? from : to;
    if (!Cudart().registered.MayCopy(static_cast<const std::byte*>(host),
                                     bytes)) {
      return Return(cudaErrorInvalidValue);
    }
  }
  return Queue(stream, [=]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (kind != cudaMemcpyDeviceToHost) CheckThere(to, bytes);
    if (kind != cudaMemcpyHostToDevice) CheckThere(from, bytes);
    std::memcpy(to, from, bytes);
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                            cudaStream_t stream) {
  return Queue(stream, [=]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    CheckThere(to, bytes);
    std::memset(to, value, bytes);
  });
}

cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned flags) {
  ROUNDHOUSE_CHECK(flags == cudaHostRegisterDefault &&
                   reinterpret_cast<uintptr_t>(data) % kPageBytes == 0 &&
                   bytes % kPageBytes == 0);
  const cudaError_t error = Begin();
  if (error != cudaSuccess) return error;
  switch (Cudart().registered.Add(static_cast<std::byte*>(data), bytes)) {
    case PinnedRanges::Added::kYes:
      return cudaSuccess;
    case PinnedRanges::Added::kOverlaps:
      return Return(cudaErrorHostMemoryAlreadyRegistered);
    case PinnedRanges::Added::kOverLimit:
      break;
  }
  return Return(cudaErrorMemoryAllocation);
}
cudaError_t cudaHostUnregister(void* data) {
  const bool was = Cudart().registered.Remove(static_cast<std::byte*>(data));
  return was ? Begin() : Return(cudaErrorHostMemoryNotRegistered);
}

}  // extern "C"
