#include "worker/model/decoder_layer.h"

#include <utility>

#include "base/model/family.h"
#include "base/model/parameters.h"
#include "worker/model/lora.h"
#include "worker/model/mixture.h"

namespace roundhouse::worker {
namespace {

struct Shape {
  int64_t rows;
  int64_t row_tokens;
};

// The one way through each of the layer's seven matrices: x W^T, plus the bias
// where the layer has one, plus the adapter where the context has one for the
// matrix.  x is [n, in]; returns [n, out].  REQUIRES: `matrix` is one of
// kLinearRoles.
at::Tensor Projection(const LayerContext& context, const LayerTensors& weights,
                      ParamRole matrix, const at::Tensor& x) {
  const at::Tensor base = Linear(x, weights[matrix], weights[BiasOf(matrix)]);
  if (context.adapter == nullptr) return base;
  return AddAdapter(context, weights, matrix, x, base);
}

// Returns [rows * row_tokens, hidden], as `x` is.
at::Tensor Attention(const LayerContext& context, const LayerTensors& weights,
                     const Shape& shape, const at::Tensor& x) {
  const ModelConfig& config = context.config;
  // [rows, row_tokens, heads, head_dim].
  const auto heads = [&](ParamRole matrix) {
    return Projection(context, weights, matrix, x)
        .view({shape.rows, shape.row_tokens, -1, config.head_dim});
  };
  const bool has_norms = FamilyOf(config.architecture).query_key_norm;
  const auto query_or_key = [&](ParamRole matrix, ParamRole norm) {
    at::Tensor states = heads(matrix);
    if (has_norms) {
      states = RmsNorm(states, weights[norm], config.rms_norm_eps);
    }
    return ApplyRope(states.transpose(1, 2), context.rope);
  };
  const at::Tensor q = query_or_key(ParamRole::kQ, ParamRole::kQNorm);
  const at::Tensor k = query_or_key(ParamRole::kK, ParamRole::kKNorm);
  const at::Tensor v = heads(ParamRole::kV).transpose(1, 2);
  const int64_t window = config.WindowOf(context.layer);
  return Projection(context, weights, ParamRole::kO,
                    context.cache != nullptr
                        ? CachedAttention(q, k, v, *context.cache, window)
                        : CausalAttention(q, k, v, context.packing, window));
}

// down(silu(gate(x)) * up(x)) of x [n, hidden].
at::Tensor Mlp(const LayerContext& context, const LayerTensors& weights,
               const at::Tensor& x) {
  at::Tensor gate = Projection(context, weights, ParamRole::kGate, x);
  const at::Tensor up = Projection(context, weights, ParamRole::kUp, x);
  return Projection(context, weights, ParamRole::kDown,
                    SwiGlu(std::move(gate), up));
}

// What stands where a dense layer has its MLP alone; as transformers has it.
at::Tensor Experts(const LayerContext& context, const LayerTensors& weights,
                   const at::Tensor& x) {
  const at::Tensor picked = Mixture(context, weights, x);
  if (context.config.mixture.shared_size == 0) return picked;
  // One after the other: gradients of x add up in the opposite order.
  const at::Tensor shared = Mlp(context, weights, x);
  const at::Tensor share =
      at::sigmoid(Linear(x, weights[ParamRole::kSharedGate]));
  return picked + share * shared;
}

}  // namespace

at::Tensor DecoderLayer(const LayerContext& context,
                        const LayerTensors& weights, const at::Tensor& x) {
  const Shape shape{x.size(0), x.size(1)};
  const auto norm = [&](const at::Tensor& input, ParamRole role) {
    return RmsNorm(input, weights[role], context.config.rms_norm_eps);
  };
  const at::Tensor flat = x.view({-1, context.config.hidden_size});
  const at::Tensor attended =
      flat +
      Attention(context, weights, shape, norm(flat, ParamRole::kInputNorm));
  const at::Tensor normed = norm(attended, ParamRole::kPostNorm);
  const at::Tensor output = attended + (context.config.HasExperts(context.layer)
                                            ? Experts(context, weights, normed)
                                            : Mlp(context, weights, normed));
  return output.view(x.sizes());
}

}  // namespace roundhouse::worker
