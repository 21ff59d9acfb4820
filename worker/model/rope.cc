#include "worker/model/rope.h"

#include <numbers>

#include "worker/model/fused/composed.h"
#include "worker/model/fused/fused.h"
#include "worker/model/on_stream.h"

namespace roundhouse::worker {
namespace {

// Long waves are stretched by the factor, short ones stay, between them the
// change is gradual.  Every operation in the order of transformers: its
// roundings are part of the frequencies.
at::Tensor Llama3Frequencies(const RopeScaling& scaling,
                             const at::Tensor& frequencies) {
  const double original =
      static_cast<double>(scaling.original_max_position_tokens);
  const double longest = original / scaling.low_freq_factor;
  const double shortest = original / scaling.high_freq_factor;
  const at::Tensor waves = at::reciprocal(frequencies) * (2 * std::numbers::pi);
  const at::Tensor is_long = waves > longest;
  const at::Tensor stretched =
      at::where(is_long, frequencies / scaling.factor, frequencies);
  const at::Tensor smooth =
      (at::reciprocal(waves) * original - scaling.low_freq_factor) /
      (scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor between =
      (1 - smooth) * stretched / scaling.factor + smooth * stretched;
  const at::Tensor is_between =
      at::logical_not(at::logical_or(waves < shortest, is_long));
  return at::where(is_between, between, stretched);
}

}  // namespace

at::Tensor RopeFrequencies(const ModelConfig& config) {
  const at::Tensor exponents = at::arange(0, config.head_dim, 2, at::kFloat) /
                               static_cast<double>(config.head_dim);
  const at::Tensor frequencies =
      at::reciprocal(at::pow(at::Scalar(config.rope_theta), exponents));
  switch (config.rope_scaling.type) {
    case RopeType::kDefault:
      return frequencies;
    case RopeType::kLinear:
      return frequencies / config.rope_scaling.factor;
    case RopeType::kLlama3:
      return Llama3Frequencies(config.rope_scaling, frequencies);
  }
  TORCH_CHECK(false, "rope type ",
              static_cast<uint32_t>(config.rope_scaling.type));
}

RopeTables MakeRopeTables(const ModelConfig& config, int64_t row_tokens,
                          at::ScalarType dtype, const at::Device& device) {
  const at::Tensor positions = at::arange(
      0, row_tokens, at::TensorOptions().dtype(at::kFloat).device(device));
  const at::Tensor angles =
      at::outer(positions, ToDevice(RopeFrequencies(config), device));
  const at::Tensor both = at::cat({angles, angles}, -1);
  return {both.cos().to(dtype), both.sin().to(dtype)};
}

RopeTables RopeAt(const RopeTables& tables, const at::Tensor& positions) {
  const auto gather = [&](const at::Tensor& table) {
    return table.index_select(0, positions.reshape({-1}))
        .view({positions.size(0), 1, positions.size(1), table.size(1)});
  };
  return {gather(tables.cos), gather(tables.sin)};
}

at::Tensor ApplyRope(const at::Tensor& x, const RopeTables& rope) {
  const FusedKernels* const kernels = FusedKernelsOf(x.device());
  return kernels != nullptr ? FusedRope(*kernels, x, rope.cos, rope.sin)
                            : ComposedRope(x, rope.cos, rope.sin);
}

}  // namespace roundhouse::worker
