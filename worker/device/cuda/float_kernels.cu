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

}  // namespace

cudaError_t LoadFloatKernels() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(Add));
}

cudaError_t LaunchAddFloats(float* to, const float* from, int64_t count,
                            cudaStream_t stream) {
  const int64_t blocks =
      std::min((count + kThreads - 1) / kThreads, kMaxBlocks);
  void* arguments[] = {&to, &from, &count};
  return cudaLaunchKernel(
      reinterpret_cast<const void*>(Add), dim3(static_cast<unsigned>(blocks)),
      dim3(static_cast<unsigned>(kThreads)), arguments, 0, stream);
}

}  // namespace roundhouse::worker
