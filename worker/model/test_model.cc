#include "worker/model/test_model.h"

#include <cstring>

#include "base/convert.h"
#include "base/log.h"

namespace roundhouse::worker {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(limit));
  }
  // Uniform with mean 0 and standard deviation `std`.
  float Spread(float std) {
    const double unit = static_cast<double>(Next() >> 11) * 0x1p-53;
    return static_cast<float>((unit - 0.5) * 3.4641016 * std);
  }

 private:
  uint64_t state_;
};

}  // namespace

ModelConfig TinyConfig(int64_t layers, bool tied) {
  ModelConfig config;
  config.hidden_size = 40;
  config.layer_count = layers;
  config.head_count = 4;
  config.kv_head_count = 2;
  config.head_dim = 16;
  config.intermediate_size = 72;
  config.vocab_size = 61;
  config.max_position_tokens = 64;
  config.tie_word_embeddings = tied;
  return config;
}

ModelConfig TinyFamilyConfig(Architecture architecture, int64_t layers) {
  ModelConfig config = TinyConfig(layers, false);
  config.architecture = architecture;
  switch (architecture) {
    case Architecture::kQwen3:
      break;
    case Architecture::kLlama:
      config.query_key_value_bias = true;
      config.output_bias = true;
      config.mlp_bias = true;
      config.rope_scaling = {.type = RopeType::kLlama3,
                             .factor = 8,
                             .low_freq_factor = 1,
                             .high_freq_factor = 4,
                             .original_max_position_tokens = 32};
      break;
    case Architecture::kQwen2:
      config.query_key_value_bias = true;
      config.sliding_window = 5;
      config.sliding_layers = LayersFrom(1, layers);
      break;
    case Architecture::kQwen2Moe:
      config.query_key_value_bias = true;
      config.sliding_window = 5;
      config.sliding_layers = LayersFrom(0, std::min<int64_t>(layers, 1));
      config.mixture = {.expert_count = 6,
                        .experts_per_token = 3,
                        .expert_size = 16,
                        .shared_size = 40,
                        .renormalize = false,
                        .layers = LayersFrom(0, layers)};
      break;
    case Architecture::kMistral:
      config.sliding_window = 5;
      config.sliding_layers = LayersFrom(0, layers);
      break;
    case Architecture::kMixtral:
      config.sliding_window = 5;
      config.sliding_layers = LayersFrom(0, layers);
      config.mixture = {.expert_count = 4,
                        .experts_per_token = 2,
                        .expert_size = 24,
                        .renormalize = true,
                        .layers = LayersFrom(0, layers)};
      break;
    case Architecture::kQwen3Moe:
      config.mixture = {.expert_count = 5,
                        .experts_per_token = 2,
                        .expert_size = 24,
                        .renormalize = true,
                        .layers = LayersFrom(1, layers)};
      break;
  }
  return config;
}

TestModel::TestModel(const ModelConfig& config, DType dtype, uint64_t seed,
                     const AdapterConfig& adapter)
    : config(config),
      dtype(dtype),
      adapter(adapter),
      units(TrainingUnits(config, adapter)) {
  Random random(seed);
  for (size_t unit = 0; unit < units.size(); ++unit) {
    const size_t count = static_cast<size_t>(units[unit].element_count);
    master.emplace_back(count, 0.0f);
    compute.emplace_back(count * DTypeBytes(DTypeOf(static_cast<int>(unit))));
    for (const ParameterSpec& parameter : units[unit].parameters) {
      const bool norm =
          parameter.shape.size() == 1 && !parameter.name.ends_with(".bias");
      const float center = norm ? 1.0f : 0.0f;
      float* values = master[unit].data() + parameter.unit_offset_elements;
      for (int64_t i = 0; i < parameter.element_count; ++i) {
        values[i] = center + random.Spread(0.2f);
      }
    }
    Refresh(static_cast<int>(unit));
  }
}

void TestModel::Refresh(int unit) {
  const auto at = static_cast<size_t>(unit);
  FromF32(DTypeOf(unit), master[at].data(), compute[at].data(),
          master[at].size());
}

LayerWeights TestModel::Weights(int64_t layer) const {
  LayerWeights weights;
  for (int unit : TrainingUnitsOfLayer(config, adapter, layer)) {
    const auto at = static_cast<size_t>(unit);
    for (const ParameterSpec& parameter : units[at].parameters) {
      const ParamRole role = parameter.role == ParamRole::kEmbedding
                                 ? ParamRole::kLmHead
                                 : parameter.role;
      weights.weight[static_cast<int>(role)] =
          compute[at].data() +
          static_cast<uint64_t>(parameter.unit_offset_elements) *
              DTypeBytes(DTypeOf(unit));
    }
  }
  return weights;
}

AlignedVector<std::byte> TestModel::Embed(
    const std::vector<int32_t>& tokens) const {
  const size_t row =
      static_cast<size_t>(config.hidden_size) * DTypeBytes(dtype);
  AlignedVector<std::byte> input(tokens.size() * row);
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::memcpy(input.data() + i * row,
                compute[0].data() + static_cast<size_t>(tokens[i]) * row, row);
  }
  return input;
}

TestBatch MakeBatch(const ModelConfig& config, int64_t rows, int64_t row_tokens,
                    uint64_t seed) {
  Random random(seed);
  TestBatch batch{.rows = rows, .row_tokens = row_tokens};
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t length =
        row == 0 ? row_tokens : 2 + random.Below(row_tokens - 1);
    for (int64_t i = 0; i < row_tokens; ++i) {
      const bool is_token = i < length;
      batch.tokens.push_back(
          is_token ? static_cast<int32_t>(random.Below(config.vocab_size)) : 0);
    }
    const int32_t* tokens =
        &batch.tokens[batch.tokens.size() - static_cast<size_t>(row_tokens)];
    for (int64_t i = 0; i < row_tokens; ++i) {
      batch.labels.push_back(i + 1 < length ? tokens[i + 1] : -100);
    }
  }
  return batch;
}

void GradientMap::OnGradient(int64_t layer, ParamRole role, const float* fp32,
                             int64_t element_count) {
  const bool is_new =
      gradients.try_emplace(Key(layer, role), fp32, fp32 + element_count)
          .second;
  ROUNDHOUSE_CHECK(is_new) << "a gradient was delivered twice";
}

}  // namespace roundhouse::worker
