#include "worker/model/fused/composed.h"

#include <vector>

namespace roundhouse::worker {

at::Tensor ComposedRmsNorm(const at::Tensor& x, const at::Tensor& weight,
                           double epsilon) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor variance = wide.pow(2).mean(-1, /*keepdim=*/true);
  return weight * (wide * at::rsqrt(variance + epsilon)).to(x.scalar_type());
}

at::Tensor ComposedRope(const at::Tensor& x, const at::Tensor& cos,
                        const at::Tensor& sin) {
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  const at::Tensor rotated = at::cat({-halves[1], halves[0]}, -1);
  return x * cos + rotated * sin;
}

at::Tensor ComposedSwiGlu(at::Tensor gate, const at::Tensor& up) {
  gate = at::silu(gate);
  return gate * up;
}

std::pair<at::Tensor, at::Tensor> ComposedSwiGluGradient(
    const at::Tensor& gradient, const at::Tensor& gate, const at::Tensor& up) {
  return {at::silu_backward(gradient * up, gate), gradient * at::silu(gate)};
}

}  // namespace roundhouse::worker
