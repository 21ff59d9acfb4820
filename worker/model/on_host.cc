#include "base/log.h"
#include "worker/model/on_stream.h"
#include "worker/model/prepare_library.h"

namespace roundhouse::worker {
namespace {

const FusedKernels* host_fused_kernels = nullptr;

}  // namespace

struct OnStream::Guard {};

at::Device TorchDevice(const NativeStream& stream) {
  ROUNDHOUSE_CHECK(stream.cuda_device == NativeStream::kHost);
  return at::kCPU;
}

OnStream::OnStream(const NativeStream&) {}
OnStream::~OnStream() = default;

at::Tensor ToDevice(const at::Tensor& host, const at::Device&) { return host; }

void ApplyMask(const DropoutMask&, int64_t, const at::Tensor&,
               const at::Tensor&) {
  ROUNDHOUSE_CHECK(false) << "no other device in this build";
}

const FusedKernels* FusedKernelsOf(const at::Device&) {
  return host_fused_kernels;
}

void SetHostFusedKernels(const FusedKernels* kernels) {
  host_fused_kernels = kernels;
}

absl::Status PrepareLibrary(const NativeStream&) { return absl::OkStatus(); }

}  // namespace roundhouse::worker
