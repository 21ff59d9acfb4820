#include "worker/model/cuda/fused_times.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "ATen/cuda/CUDAEvent.h"
#include "torch/csrc/autograd/autograd.h"
#include "worker/model/fused/composed.h"
#include "worker/model/fused/fused.h"
#include "worker/model/on_stream.h"

namespace roundhouse::worker {
namespace {

constexpr int64_t kHidden = 4096, kInner = 14336, kHeads = 32, kHeadDim = 128;
constexpr double kEpsilon = 1e-6;
// Queued together, so that the GPU does not wait for the host in between.
constexpr int kQueued = 10;
constexpr int kBatches = 4;  // the first one warms up

using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Tensors&)>;

// Milliseconds of a forward and a backward.
double Time(const Function& function, const Tensors& leaves,
            const at::Tensor& direction) {
  double least = std::numeric_limits<double>::max();
  for (int batch = 0; batch < kBatches; ++batch) {
    at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
    begin.record();
    for (int run = 0; run < kQueued; ++run) {
      torch::autograd::grad({function(leaves)}, leaves, {direction});
    }
    end.record();
    end.synchronize();
    if (batch == 0) continue;
    least = std::min(least, static_cast<double>(begin.elapsed_time(end)));
  }
  return least / kQueued;
}

class Timer {
 public:
  Timer(int device, int64_t tokens)
      : options_(at::TensorOptions()
                     .dtype(at::kBFloat16)
                     .device(at::kCUDA, static_cast<c10::DeviceIndex>(device))),
        kernels_(*FusedKernelsOf(options_.device())),
        tokens_(tokens) {}

  FusedTimes Norm(const std::string& name, at::IntArrayRef shape) const {
    return Compare(
        name, {Leaf(shape), Leaf({shape.back()})}, at::randn(shape, options_),
        [&](const Tensors& x) {
          return FusedRmsNorm(kernels_, x[0], x[1], kEpsilon);
        },
        [](const Tensors& x) { return ComposedRmsNorm(x[0], x[1], kEpsilon); });
  }

  FusedTimes Rotary() const {
    const at::Tensor table = at::randn({tokens_, kHeadDim}, options_);
    const auto tokens_first = [](const at::Tensor& x) {
      return x.transpose(1, 2);
    };
    const std::vector<int64_t> shape = {1, tokens_, kHeads, kHeadDim};
    return Compare(
        "rotary", {Leaf(shape)}, tokens_first(at::randn(shape, options_)),
        [&](const Tensors& x) {
          return FusedRope(kernels_, tokens_first(x[0]), table, table);
        },
        [&](const Tensors& x) {
          return ComposedRope(tokens_first(x[0]), table, table);
        });
  }

  FusedTimes SwiGlu() const {
    const std::vector<int64_t> shape = {tokens_, kInner};
    return Compare(
        "swiglu", {Leaf(shape), Leaf(shape)}, at::randn(shape, options_),
        [&](const Tensors& x) { return FusedSwiGlu(kernels_, x[0], x[1]); },
        [](const Tensors& x) { return ComposedSwiGlu(x[0], x[1]); });
  }

 private:
  static FusedTimes Compare(const std::string& name, const Tensors& leaves,
                            const at::Tensor& direction, const Function& fused,
                            const Function& operators) {
    return {.name = name,
            .fused_ms = Time(fused, leaves, direction),
            .operators_ms = Time(operators, leaves, direction)};
  }

  at::Tensor Leaf(at::IntArrayRef shape) const {
    return at::randn(shape, options_).requires_grad_(true);
  }

  const at::TensorOptions options_;
  const FusedKernels& kernels_;
  const int64_t tokens_;
};

}  // namespace

absl::StatusOr<std::vector<FusedTimes>> TimeFusedKernels(int device,
                                                         int64_t tokens) {
  std::vector<FusedTimes> times;
  const absl::Status status =
      GuardTorch("fused kernels beside operators", [&]() -> absl::Status {
        const Timer timer(device, tokens);
        times.push_back(timer.Norm("rms_norm", {tokens, kHidden}));
        times.push_back(timer.Norm("head_norm", {1, tokens, kHeads, kHeadDim}));
        times.push_back(timer.Rotary());
        times.push_back(timer.SwiGlu());
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return times;
}

}  // namespace roundhouse::worker
