#include <algorithm>

#include "worker/model/cuda/dropout_kernel.h"

namespace roundhouse::worker {
namespace {

constexpr int64_t kThreads = 256;
constexpr int64_t kMaxBlocks = 8192;
constexpr int kWords = 4;  // of a Philox block

// base/philox.h in registers.
__device__ uint4 Philox4x32(uint4 counter, uint2 key) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t a = 0xD2511F53u * counter.x;
    const uint32_t b = 0xCD9E8D57u * counter.z;
    counter = {__umulhi(0xCD9E8D57u, counter.z) ^ counter.y ^ key.x, b,
               __umulhi(0xD2511F53u, counter.x) ^ counter.w ^ key.y, a};
    key = {key.x + 0x9E3779B9u, key.y + 0xBB67AE85u};
  }
  return counter;
}

// A thread draws one block, so up to four features of a token, at a time.
__global__ void Dropout(MaskNumbers mask, int64_t row_tokens, const float* from,
                        float* to, int64_t tokens, int64_t features) {
  const int64_t blocks = (features + kWords - 1) / kWords;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < tokens * blocks; i += stride) {
    const int64_t n = i / blocks;
    const int64_t block = i % blocks;
    const uint4 drawn = Philox4x32(
        {static_cast<uint32_t>(block), static_cast<uint32_t>(n % row_tokens),
         static_cast<uint32_t>(n / row_tokens), mask.site[2]},
        {mask.site[0], mask.site[1]});
    const uint32_t numbers[kWords] = {drawn.x, drawn.y, drawn.z, drawn.w};
    const int64_t first = block * kWords;
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      if (first + word >= features) break;
      const int64_t at = n * features + first + word;
      to[at] = __fmul_rn(from[at],
                         numbers[word] < mask.threshold ? 0.0f : mask.kept);
    }
  }
}

}  // namespace

cudaError_t LaunchDropout(const MaskNumbers& mask, int64_t row_tokens,
                          const float* from, float* to, int64_t tokens,
                          int64_t features, cudaStream_t stream) {
  const int64_t work = tokens * ((features + kWords - 1) / kWords);
  if (work == 0) return cudaSuccess;  // CUDA refuses an empty grid
  const int64_t blocks = std::min((work + kThreads - 1) / kThreads, kMaxBlocks);
  MaskNumbers numbers = mask;
  void* arguments[] = {&numbers, &row_tokens, &from, &to, &tokens, &features};
  return cudaLaunchKernel(reinterpret_cast<const void*>(Dropout),
                          dim3(static_cast<unsigned>(blocks)),
                          dim3(static_cast<unsigned>(kThreads)), arguments, 0,
                          stream);
}

}  // namespace roundhouse::worker
