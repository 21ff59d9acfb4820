// LibTorch on a worker's stream.  Includes ATen: for .cc files of worker/model
// only.  Which of on_host.cc and cuda/on_cuda.cc serves is chosen by linking.
#ifndef ROUNDHOUSE_WORKER_MODEL_ON_STREAM_H_
#define ROUNDHOUSE_WORKER_MODEL_ON_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "ATen/ATen.h"
#include "absl/status/status.h"
#include "worker/device/native_stream.h"
#include "worker/model/dropout.h"
#include "worker/model/fused/fused_kernels.h"
#include "worker/model/tensors.h"

namespace roundhouse::worker {

// Where tensors of a stream's work lie.
at::Device TorchDevice(const NativeStream& stream);

// While it lives, what LibTorch computes on the stream's device in this thread
// is queued on the stream.  For host memory it does nothing.
class OnStream {
 public:
  explicit OnStream(const NativeStream& stream);
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

// `host` on `device`, without waiting for the device's work: itself, or a copy
// that is queued on the current stream.
at::Tensor ToDevice(const at::Tensor& host, const at::Device& device);

// DropoutMask::Apply to [n, features] fp32, dense, of a device that is not the
// host: row i / row_tokens, token i % row_tokens.  They may be one.
void ApplyMask(const DropoutMask& mask, int64_t row_tokens,
               const at::Tensor& from, const at::Tensor& to);

// The kernels for tensors on `device`; null where LibTorch's operators compute.
// They queue on its current stream, so the thread's current device is `device`.
const FusedKernels* FusedKernelsOf(const at::Device& device);
// Test only: those of host memory from now on, or null.  They outlive their
// use.
void SetHostFusedKernels(const FusedKernels* kernels);

// GuardTorch of work on `stream`.
template <typename Body>
absl::Status GuardTorchOn(const NativeStream& stream, const std::string& what,
                          Body body) {
  return GuardTorch(what, [&]() -> absl::Status {
    const OnStream on_stream(stream);
    return body();
  });
}

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_ON_STREAM_H_
