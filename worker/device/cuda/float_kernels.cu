#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "worker/device/cuda/float_kernels.h"

namespace roundhouse::worker {
namespace {

constexpr int64_t kThreads = 256;
// Enough to fill any device several times over; each thread takes more than one
// element of what is larger.
constexpr int64_t kMaxBlocks = 8192;

__global__ void Add(float* __restrict__ to, const float* __restrict__ from,
                    int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < count; i += stride) {
    to[i] = __fadd_rn(to[i], from[i]);
  }
}

// to[i] = convert(from[i]) for each element.
template <typename To, typename From, typename Convert>
__device__ void ConvertAll(To* __restrict__ to, const From* __restrict__ from,
                           int64_t count, Convert convert) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < count; i += stride) {
    to[i] = convert(from[i]);
  }
}

__global__ void RoundToBf16(uint16_t* __restrict__ to,
                            const float* __restrict__ from, int64_t count) {
  ConvertAll(to, from, count, [](float value) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  });
}

__global__ void RoundToFp16(uint16_t* __restrict__ to,
                            const float* __restrict__ from, int64_t count) {
  ConvertAll(to, from, count, [](float value) {
    return __half_as_ushort(__float2half_rn(value));
  });
}

__global__ void WidenBf16(float* __restrict__ to,
                          const uint16_t* __restrict__ from, int64_t count) {
  ConvertAll(to, from, count, [](uint16_t bits) {
    return __bfloat162float(__ushort_as_bfloat16(bits));
  });
}

__global__ void WidenFp16(float* __restrict__ to,
                          const uint16_t* __restrict__ from, int64_t count) {
  ConvertAll(to, from, count, [](uint16_t bits) {
    return __half2float(__ushort_as_half(bits));
  });
}

// `arguments` of a kernel over `count` elements.
cudaError_t Launch(const void* kernel, int64_t count, void** arguments,
                   cudaStream_t stream) {
  const int64_t blocks =
      std::min((count + kThreads - 1) / kThreads, kMaxBlocks);
  return cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)),
                          dim3(static_cast<unsigned>(kThreads)), arguments, 0,
                          stream);
}

}  // namespace

cudaError_t LoadFloatKernels() {
  for (const void* kernel : {reinterpret_cast<const void*>(Add),
                             reinterpret_cast<const void*>(RoundToBf16),
                             reinterpret_cast<const void*>(RoundToFp16),
                             reinterpret_cast<const void*>(WidenBf16),
                             reinterpret_cast<const void*>(WidenFp16)}) {
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchAddFloats(float* to, const float* from, int64_t count,
                            cudaStream_t stream) {
  void* arguments[] = {&to, &from, &count};
  return Launch(reinterpret_cast<const void*>(Add), count, arguments, stream);
}

cudaError_t LaunchRoundToBf16(uint16_t* to, const float* from, int64_t count,
                              cudaStream_t stream) {
  void* arguments[] = {&to, &from, &count};
  return Launch(reinterpret_cast<const void*>(RoundToBf16), count, arguments,
                stream);
}

cudaError_t LaunchRoundToFp16(uint16_t* to, const float* from, int64_t count,
                              cudaStream_t stream) {
  void* arguments[] = {&to, &from, &count};
  return Launch(reinterpret_cast<const void*>(RoundToFp16), count, arguments,
                stream);
}

cudaError_t LaunchWidenBf16(float* to, const uint16_t* from, int64_t count,
                            cudaStream_t stream) {
  void* arguments[] = {&to, &from, &count};
  return Launch(reinterpret_cast<const void*>(WidenBf16), count, arguments,
                stream);
}

cudaError_t LaunchWidenFp16(float* to, const uint16_t* from, int64_t count,
                            cudaStream_t stream) {
  void* arguments[] = {&to, &from, &count};
  return Launch(reinterpret_cast<const void*>(WidenFp16), count, arguments,
                stream);
}

}  // namespace roundhouse::worker
