#include "base/wire/model_dims.h"

#include <cstddef>
#include <cstdint>

namespace roundhouse::wire {
namespace {

constexpr size_t kWordBits = 64;

void Put(const LayerSet& layers, uint64_t words[kLayerSetWords]) {
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    if (!layers[layer]) continue;
    words[layer / kWordBits] |= uint64_t{1} << layer % kWordBits;
  }
}

LayerSet LayersOf(const uint64_t words[kLayerSetWords]) {
  LayerSet layers;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    layers[layer] = (words[layer / kWordBits] >> layer % kWordBits & 1) != 0;
  }
  return layers;
}

}  // namespace

ModelDims DimsOf(const ModelConfig& config) {
  const RopeScaling& rope = config.rope_scaling;
  ModelDims dims = {
      .architecture = static_cast<uint32_t>(config.architecture),
      .tie_word_embeddings = config.tie_word_embeddings ? 1u : 0u,
      .hidden_size = config.hidden_size,
      .layer_count = config.layer_count,
      .head_count = config.head_count,
      .kv_head_count = config.kv_head_count,
      .head_dim = config.head_dim,
      .intermediate_size = config.intermediate_size,
      .vocab_size = config.vocab_size,
      .max_position_tokens = config.max_position_tokens,
      .rope_theta = config.rope_theta,
      .rms_norm_eps = config.rms_norm_eps,
      .rope_type = static_cast<uint32_t>(rope.type),
      .query_key_value_bias = config.query_key_value_bias ? 1u : 0u,
      .output_bias = config.output_bias ? 1u : 0u,
      .mlp_bias = config.mlp_bias ? 1u : 0u,
      .rope_factor = rope.factor,
      .rope_low_freq_factor = rope.low_freq_factor,
      .rope_high_freq_factor = rope.high_freq_factor,
      .rope_original_max_position_tokens = rope.original_max_position_tokens,
      .sliding_window = config.sliding_window,
      .sliding_layers = {},
      .expert_layers = {},
      .expert_count = config.mixture.expert_count,
      .experts_per_token = config.mixture.experts_per_token,
      .expert_size = config.mixture.expert_size,
      .shared_size = config.mixture.shared_size,
      .renormalize = config.mixture.renormalize ? 1u : 0u,
  };
  Put(config.sliding_layers, dims.sliding_layers);
  Put(config.mixture.layers, dims.expert_layers);
  return dims;
}

ModelConfig ConfigOf(const ModelDims& dims, DType dtype) {
  ModelConfig config;
  config.architecture = static_cast<Architecture>(dims.architecture);
  config.hidden_size = dims.hidden_size;
  config.layer_count = dims.layer_count;
  config.head_count = dims.head_count;
  config.kv_head_count = dims.kv_head_count;
  config.head_dim = dims.head_dim;
  config.intermediate_size = dims.intermediate_size;
  config.vocab_size = dims.vocab_size;
  config.max_position_tokens = dims.max_position_tokens;
  config.rope_theta = dims.rope_theta;
  config.rope_scaling = {
      .type = static_cast<RopeType>(dims.rope_type),
      .factor = dims.rope_factor,
      .low_freq_factor = dims.rope_low_freq_factor,
      .high_freq_factor = dims.rope_high_freq_factor,
      .original_max_position_tokens = dims.rope_original_max_position_tokens,
  };
  config.query_key_value_bias = dims.query_key_value_bias != 0;
  config.output_bias = dims.output_bias != 0;
  config.mlp_bias = dims.mlp_bias != 0;
  config.sliding_window = dims.sliding_window;
  config.sliding_layers = LayersOf(dims.sliding_layers);
  config.mixture = {.expert_count = dims.expert_count,
                    .experts_per_token = dims.experts_per_token,
                    .expert_size = dims.expert_size,
                    .shared_size = dims.shared_size,
                    .renormalize = dims.renormalize != 0,
                    .layers = LayersOf(dims.expert_layers)};
  config.rms_norm_eps = dims.rms_norm_eps;
  config.tie_word_embeddings = dims.tie_word_embeddings != 0;
  config.dtype = dtype;
  return config;
}

AdapterDims DimsOf(const AdapterConfig& adapter) {
  return {.rank = adapter.rank,
          .alpha = adapter.alpha,
          .dropout = adapter.dropout,
          .targets = adapter.targets,
          .pad = 0};
}

AdapterConfig ConfigOf(const AdapterDims& dims) {
  return {.rank = dims.rank,
          .alpha = dims.alpha,
          .dropout = dims.dropout,
          .targets = dims.targets};
}

}  // namespace roundhouse::wire
