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
constexpr int kWarmUps = 3;
constexpr int kRuns = 10;

using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Tensors&)>;

// Milliseconds of a forward and a backward.
double Time(const Function& function, const Tensors& leaves,
            const at::Tensor& direction) {
  double least = std::numeric_limits<double>::max();
  for (int run = 0; run < kWarmUps + kRuns; ++run) {
    at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
    begin.record();
    const at::Tensor value = function(leaves);
    torch::autograd::grad({value}, leaves, {direction});
    end.record();
    end.synchronize();
    if (run >= kWarmUps) {
      least = std::min(least, static_cast<double>(begin.elapsed_time(end)));
    }
  }
  return least;
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
