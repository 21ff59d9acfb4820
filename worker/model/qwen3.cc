#include "worker/model/qwen3.h"

namespace roundhouse::worker {
namespace {

struct Shape {
  int64_t rows;
  int64_t row_tokens;
  int64_t head_dim;
};

// [n, heads * head_dim] -> [rows, row_tokens, heads, head_dim].
at::Tensor Heads(const at::Tensor& x, const Shape& shape) {
  return x.view({shape.rows, shape.row_tokens, -1, shape.head_dim});
}

at::Tensor Attention(const ModelConfig& config, const RopeTables& rope,
                     const LayerTensors& weights, const Shape& shape,
                     const at::Tensor& x) {
  // Heads have a norm of their own before they are rotated.
  const auto query_or_key = [&](ParamRole matrix, ParamRole norm) {
    const at::Tensor heads = Heads(Linear(x, weights[matrix]), shape);
    return ApplyRope(
        RmsNorm(heads, weights[norm], config.rms_norm_eps).transpose(1, 2),
        rope);
  };
  const at::Tensor q = query_or_key(ParamRole::kQ, ParamRole::kQNorm);
  const at::Tensor k = query_or_key(ParamRole::kK, ParamRole::kKNorm);
  const at::Tensor v =
      Heads(Linear(x, weights[ParamRole::kV]), shape).transpose(1, 2);
  return Linear(CausalAttention(q, k, v), weights[ParamRole::kO]);
}

}  // namespace

at::Tensor Qwen3Layer(const ModelConfig& config, const RopeTables& rope,
                      const LayerTensors& weights, const at::Tensor& x) {
  const Shape shape{x.size(0), x.size(1), config.head_dim};
  const auto norm = [&](const at::Tensor& input, ParamRole role) {
    return RmsNorm(input, weights[role], config.rms_norm_eps);
  };
  const at::Tensor flat = x.view({-1, config.hidden_size});
  const at::Tensor attended =
      flat + Attention(config, rope, weights, shape,
                       norm(flat, ParamRole::kInputNorm));
  const at::Tensor output =
      attended + SwiGlu(norm(attended, ParamRole::kPostNorm), weights);
  return output.view(x.sizes());
}

}  // namespace roundhouse::worker
