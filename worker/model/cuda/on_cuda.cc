#include <cuda_runtime_api.h>

#include <optional>

#include "ATen/Context.h"
#include "base/log.h"
#include "c10/cuda/CUDAException.h"
#include "c10/cuda/CUDAGuard.h"
#include "c10/cuda/CUDAStream.h"
#include "worker/model/cuda/dropout_kernel.h"
#include "worker/model/cuda/launch_fused.h"
#include "worker/model/on_stream.h"
#include "worker/model/prepare_library.h"

namespace roundhouse::worker {
namespace {

c10::cuda::CUDAStream TorchStream(const NativeStream& stream) {
  return c10::cuda::getStreamFromExternal(
      static_cast<cudaStream_t>(stream.handle),
      static_cast<c10::DeviceIndex>(stream.cuda_device));
}

// The thread's last error must not stay: LibTorch would take it for one of the
// next call that it checks, which may free a tensor where nothing may throw.
void CheckLaunch(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  // A first launch, which loads the kernel, may run out of memory.
  TORCH_CHECK_WITH(OutOfMemoryError, error != cudaErrorMemoryAllocation, what,
                   ": ", cudaGetErrorString(error));
  TORCH_CHECK(false, what, ": ", cudaGetErrorName(error), ": ",
              cudaGetErrorString(error));
}

class CudaFusedKernels : public FusedKernels {
 public:
  void Run(const RmsNormWork& work) const override { Queue(work); }
  void Run(const RmsNormGradientWork& work) const override { Queue(work); }
  void Run(const RopeWork& work) const override { Queue(work); }
  void Run(const SwiGluWork& work) const override { Queue(work); }
  void Run(const SwiGluGradientWork& work) const override { Queue(work); }
  void Run(const SplitWork& work) const override { Queue(work); }

 private:
  template <class Work>
  static void Queue(const Work& work) {
    CheckLaunch(Launch(work, c10::cuda::getCurrentCUDAStream().stream()),
                "fused kernel");
  }
};

const FusedKernels* host_fused_kernels = nullptr;

// With its first allocation LibTorch's allocator makes the pool that it shares
// with the device keep all it ever had, and wait for memory that a stream has
// still to free; both are taken back (worker/device/cuda/memory_pool.cc).
void ShareMemoryPool(const NativeStream& stream) {
  cudaMemPool_t pool = nullptr;
  C10_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, stream.cuda_device));
  uint64_t threshold = 0;
  int dependencies = 0;
  C10_CUDA_CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold,
                                         &threshold));
  C10_CUDA_CHECK(cudaMemPoolGetAttribute(
      pool, cudaMemPoolReuseAllowInternalDependencies, &dependencies));
  at::empty({1}, at::TensorOptions().device(TorchDevice(stream)));
  if (threshold > 0) {  // else there is no Device that shares it
    C10_CUDA_CHECK(cudaMemPoolSetAttribute(
        pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  }
  C10_CUDA_CHECK(cudaMemPoolSetAttribute(
      pool, cudaMemPoolReuseAllowInternalDependencies, &dependencies));
}

}  // namespace

struct OnStream::Guard {
  explicit Guard(const NativeStream& stream) : torch(TorchStream(stream)) {}
  c10::cuda::CUDAStreamGuard torch;
};

at::Device TorchDevice(const NativeStream& stream) {
  if (stream.cuda_device == NativeStream::kHost) return at::kCPU;
  return {at::kCUDA, static_cast<c10::DeviceIndex>(stream.cuda_device)};
}

OnStream::OnStream(const NativeStream& stream) {
  if (stream.cuda_device == NativeStream::kHost) return;
  guard_ = std::make_unique<Guard>(stream);
}
OnStream::~OnStream() = default;

at::Tensor ToDevice(const at::Tensor& host, const at::Device& device) {
  if (device.is_cpu()) return host;
  // From pageable memory it would wait; LibTorch keeps the pinned copy until
  // the stream has read it, and uses it again: only the first ones of a size
  // are allocated, which may wait.  pin_memory() makes none of memory that is
  // pinned, as the arena is, in pieces that no copy may span.
  const at::Tensor pinned =
      at::empty(host.sizes(), host.options().pinned_memory(true));
  pinned.copy_(host);
  return pinned.to(device, host.scalar_type(), /*non_blocking=*/true);
}

void ApplyMask(const DropoutMask& mask, int64_t row_tokens,
               const at::Tensor& from, const at::Tensor& to) {
  TORCH_CHECK(from.is_cuda() && from.is_contiguous() && to.is_contiguous());
  CheckLaunch(LaunchDropout(
                  mask.numbers(), row_tokens, from.const_data_ptr<float>(),
                  to.data_ptr<float>(), from.size(0), from.size(1),
                  c10::cuda::getCurrentCUDAStream(from.get_device()).stream()),
              "dropout");
}

const FusedKernels* FusedKernelsOf(const at::Device& device) {
  static const CudaFusedKernels kernels;
  return device.is_cuda() ? &kernels : host_fused_kernels;
}

void SetHostFusedKernels(const FusedKernels* kernels) {
  host_fused_kernels = kernels;
}

absl::Status PrepareLibrary(const NativeStream& stream) {
  if (stream.cuda_device == NativeStream::kHost) return absl::OkStatus();
  return GuardTorchOn(stream, "LibTorch on a GPU", [&stream] {
    at::Context& context = at::globalContext();
    context.setDeterministicAlgorithms(true, /*warn_only=*/false);
    // Writes every new tensor once more; ours are written before they are read.
    context.setDeterministicFillUninitializedMemory(false);
    context.setBenchmarkCuDNN(false);
    context.setFloat32MatmulPrecision("highest");  // no TF32
    // Partial sums of products would round, and those of fp16 overflow, in the
    // products' dtype.
    context.setAllowFP16ReductionCuBLAS(false);
    context.setAllowBF16ReductionCuBLAS(false);
    // Its backward has no deterministic form.
    context.setSDPUseCuDNN(false);
    context.lazyInitDevice(at::kCUDA);
    ShareMemoryPool(stream);
    return absl::OkStatus();
  });
}

}  // namespace roundhouse::worker
