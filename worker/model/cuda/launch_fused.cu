#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "worker/model/cuda/launch_fused.h"
#include "worker/model/fused/fused_rows.h"
#include "worker/model/fused/fused_widths.h"

namespace roundhouse::worker {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kColumnThreads = 128;
// Longer rows are a block's: a warp would take more than four packs of two byte
// elements a lane.
constexpr int64_t kLongestWarpRow = 1024;
// Enough to fill any device several times over.
constexpr int64_t kMaxBlocks = 8192;

struct Elements {
  struct Fp32 {
    using Stored = float;
    __device__ static float Widen(float value) { return value; }
    __device__ static float Narrow(float value) { return value; }
  };

  struct Bf16 {
    using Stored = uint16_t;
    __device__ static float Widen(uint16_t bits) {
      return __bfloat162float(__ushort_as_bfloat16(bits));
    }
    __device__ static uint16_t Narrow(float value) {
      return __bfloat16_as_ushort(__float2bfloat16_rn(value));
    }
  };

  struct Fp16 {
    using Stored = uint16_t;
    __device__ static float Widen(uint16_t bits) {
      return __half2float(__ushort_as_half(bits));
    }
    __device__ static uint16_t Narrow(float value) {
      return __half_as_ushort(__float2half_rn(value));
    }
  };
};

// All lanes must be there.
__device__ float SumOfWarp(float value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

struct WarpLanes {
  static constexpr int64_t kRowsOfBlock = kWarps;
  __device__ static int64_t Row() {
    return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  }
  __device__ static int64_t first() { return threadIdx.x % kWarp; }
  __device__ static int64_t count() { return kWarp; }
  __device__ static float Sum(float value) { return SumOfWarp(value); }
};

struct BlockLanes {
  static constexpr int64_t kRowsOfBlock = 1;
  __device__ static int64_t Row() { return blockIdx.x; }
  __device__ static int64_t first() { return threadIdx.x; }
  __device__ static int64_t count() { return kThreads; }
  // Once in a kernel: nothing waits for the sums to have been read.
  __device__ static float Sum(float value) {
    __shared__ float sums[kWarps];
    const float mine = SumOfWarp(value);
    if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = mine;
    __syncthreads();
    float sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp];
    return sum;
  }
};

// Work that is of rows; those past the end are whole warps or none.
template <class Element, int kWidth, class Lanes>
__global__ void RunRow(RmsNormWork work) {
  const int64_t row = Lanes::Row();
  if (row >= work.rows) return;
  const Lanes lanes;
  const float scale = NormRow<Element, kWidth>(lanes, work, row);
  if (lanes.first() == 0) work.scales[row] = scale;
}

template <class Element, int kWidth, class Lanes>
__global__ void RunRow(RmsNormGradientWork work) {
  const int64_t row = Lanes::Row();
  if (row >= work.rows) return;
  NormRowGradient<Element, kWidth>(Lanes(), work, row);
}

template <class Element>
__global__ void SumColumns(RmsNormGradientWork work) {
  const int64_t column =
      static_cast<int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x;
  if (column >= work.columns) return;
  NormColumnGradient<Element>(work, blockIdx.y, column);
}

// One pack of work that is of packs.
template <class Element, int kWidth>
__device__ void RunPack(const RopeWork& work, int64_t pack) {
  TurnPairs<Element, kWidth>(work, pack);
}
template <class Element, int kWidth>
__device__ void RunPack(const SwiGluWork& work, int64_t pack) {
  SwiGluPack<Element, kWidth>(work, pack);
}
template <class Element, int kWidth>
__device__ void RunPack(const SwiGluGradientWork& work, int64_t pack) {
  SwiGluPackGradient<Element, kWidth>(work, pack);
}

template <class Element, int kWidth, class Work>
__global__ void RunPacks(Work work, int64_t packs) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < packs; i += stride) {
    RunPack<Element, kWidth>(work, i);
  }
}

__global__ void SplitElements(SplitWork work) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < work.rows * work.columns; i += stride) {
    SplitElement<Elements::Bf16>(work, i);
  }
}

template <class... Arguments>
cudaError_t LaunchKernel(void (*kernel)(Arguments...), int64_t blocks_x,
                         int64_t blocks_y, int threads, cudaStream_t stream,
                         Arguments... arguments) {
  void* pointers[] = {&arguments...};
  return cudaLaunchKernel(
      reinterpret_cast<const void*>(kernel),
      dim3(static_cast<unsigned>(blocks_x), static_cast<unsigned>(blocks_y)),
      dim3(static_cast<unsigned>(threads)), pointers, 0, stream);
}

template <class Element, int kWidth, class Lanes, class Work>
cudaError_t LaunchRowsOf(const Work& work, cudaStream_t stream) {
  const int64_t blocks =
      (work.rows + Lanes::kRowsOfBlock - 1) / Lanes::kRowsOfBlock;
  return LaunchKernel<Work>(&RunRow<Element, kWidth, Lanes>, blocks, 1,
                            kThreads, stream, work);
}

template <class Work>
cudaError_t LaunchRows(const Work& work, cudaStream_t stream) {
  if (work.rows == 0) return cudaSuccess;  // CUDA refuses an empty grid
  return WithElement<Elements>(
      work.dtype, HasPacks(work), [&]<class Element, int kWidth>() {
        return work.columns <= kLongestWarpRow
                   ? LaunchRowsOf<Element, kWidth, WarpLanes>(work, stream)
                   : LaunchRowsOf<Element, kWidth, BlockLanes>(work, stream);
      });
}

// `elements`: of `work`, each in one pack.
template <class Work>
cudaError_t LaunchPacks(const Work& work, int64_t elements,
                        cudaStream_t stream) {
  if (elements == 0) return cudaSuccess;
  return WithElement<Elements>(
      work.dtype, HasPacks(work), [&]<class Element, int kWidth>() {
        const int64_t packs = elements / kWidth;
        const int64_t blocks =
            std::min((packs + kThreads - 1) / kThreads, kMaxBlocks);
        return LaunchKernel<Work, int64_t>(&RunPacks<Element, kWidth, Work>,
                                           blocks, 1, kThreads, stream, work,
                                           packs);
      });
}

}  // namespace

cudaError_t Launch(const RmsNormWork& work, cudaStream_t stream) {
  return LaunchRows(work, stream);
}

cudaError_t Launch(const RmsNormGradientWork& work, cudaStream_t stream) {
  const cudaError_t error = LaunchRows(work, stream);
  if (error != cudaSuccess || work.rows == 0 || work.weight_sums == nullptr) {
    return error;
  }
  const int64_t columns = (work.columns + kColumnThreads - 1) / kColumnThreads;
  const int64_t chunks = (work.rows + work.chunk_rows - 1) / work.chunk_rows;
  constexpr bool kPacks = false;  // a thread adds up one column
  return WithElement<Elements>(
      work.dtype, kPacks, [&]<class Element, int kWidth>() {
        return LaunchKernel<RmsNormGradientWork>(&SumColumns<Element>, columns,
                                                 chunks, kColumnThreads, stream,
                                                 work);
      });
}

cudaError_t Launch(const RopeWork& work, cudaStream_t stream) {
  return LaunchPacks(
      work, work.rows * work.tokens * work.heads * (work.head_dim / 2), stream);
}

cudaError_t Launch(const SwiGluWork& work, cudaStream_t stream) {
  return LaunchPacks(work, work.count, stream);
}

cudaError_t Launch(const SwiGluGradientWork& work, cudaStream_t stream) {
  return LaunchPacks(work, work.count, stream);
}

cudaError_t Launch(const SplitWork& work, cudaStream_t stream) {
  const int64_t elements = work.rows * work.columns;
  if (elements == 0) return cudaSuccess;
  return LaunchKernel<SplitWork>(
      &SplitElements,
      std::min((elements + kThreads - 1) / kThreads, kMaxBlocks), 1, kThreads,
      stream, work);
}

}  // namespace roundhouse::worker
