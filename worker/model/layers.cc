#include "worker/model/layers.h"

#include "torch/csrc/autograd/custom_function.h"

namespace roundhouse::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Keeps its operands in their own dtype for the backward.
class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return Product(x, weight.t());
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    return {Product(gradients[0], saved[1]),
            Product(gradients[0].t(), saved[0])};
  }
};

}  // namespace

RopeTables MakeRopeTables(const ModelConfig& config, int64_t row_tokens,
                          at::ScalarType dtype) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor exponents = at::arange(0, config.head_dim, 2, options) /
                               static_cast<double>(config.head_dim);
  const at::Tensor frequencies =
      at::reciprocal(at::pow(at::Scalar(config.rope_theta), exponents));
  const at::Tensor angles =
      at::outer(at::arange(0, row_tokens, options), frequencies);
  const at::Tensor both = at::cat({angles, angles}, -1);
  return {both.cos().to(dtype), both.sin().to(dtype)};
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor variance = wide.pow(2).mean(-1, /*keepdim=*/true);
  return weight * (wide * at::rsqrt(variance + eps)).to(x.scalar_type());
}

at::Tensor Product(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_cpu() || a.scalar_type() == at::kFloat) return a.mm(b);
  return a.to(at::kFloat).mm(b.to(at::kFloat)).to(a.scalar_type());
}

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight) {
  return LinearFunction::apply(x, weight);
}

at::Tensor ApplyRope(const at::Tensor& x, const RopeTables& rope) {
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  const at::Tensor rotated = at::cat({-halves[1], halves[0]}, -1);
  return x * rope.cos + rotated * rope.sin;
}

at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v) {
  const at::Tensor mixed = at::scaled_dot_product_attention(
      q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true,
      /*scale=*/std::nullopt, /*enable_gqa=*/q.size(1) != k.size(1));
  return mixed.transpose(1, 2).reshape(
      {q.size(0) * q.size(2), q.size(1) * q.size(3)});
}

at::Tensor SwiGlu(const at::Tensor& x, const LayerTensors& weights) {
  const at::Tensor gate = at::silu(Linear(x, weights[ParamRole::kGate]));
  const at::Tensor up = Linear(x, weights[ParamRole::kUp]);
  return Linear(gate * up, weights[ParamRole::kDown]);
}

}  // namespace roundhouse::worker
