// Whatever the bytes: ParseModelConfig answers, and what it accepts is within
// the limits and survives an export.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/limits.h"
#include "base/log.h"
#include "base/model/config.h"
#include "base/model/parameters.h"

namespace roundhouse {
namespace {

void CheckConfig(const ModelConfig& config) {
  const auto within = [](int64_t value, int64_t max) {
    return value >= 1 && value <= max;
  };
  ROUNDHOUSE_CHECK(within(config.hidden_size, kMaxHiddenSize));
  ROUNDHOUSE_CHECK(within(config.layer_count, kMaxModelLayers));
  ROUNDHOUSE_CHECK(within(config.head_count, kMaxAttentionHeads));
  ROUNDHOUSE_CHECK(within(config.kv_head_count, kMaxAttentionHeads));
  ROUNDHOUSE_CHECK(within(config.head_dim, kMaxHeadDim));
  ROUNDHOUSE_CHECK(within(config.intermediate_size, kMaxIntermediateSize));
  ROUNDHOUSE_CHECK(within(config.vocab_size, kMaxVocabSize));
  ROUNDHOUSE_CHECK(within(config.max_position_tokens, kMaxPositionTokens));
  ROUNDHOUSE_CHECK(config.head_count % config.kv_head_count == 0);
  ROUNDHOUSE_CHECK(config.head_dim % 2 == 0);
  ROUNDHOUSE_CHECK(config.rope_theta > 0);
  ROUNDHOUSE_CHECK(config.rms_norm_eps > 0);
}

void CheckAttention(const ModelConfig& config) {
  const RopeScaling& rope = config.rope_scaling;
  ROUNDHOUSE_CHECK(rope.factor > 0);
  if (rope.type == RopeType::kLlama3) {
    ROUNDHOUSE_CHECK(rope.low_freq_factor > 0);
    ROUNDHOUSE_CHECK(rope.low_freq_factor < rope.high_freq_factor);
    ROUNDHOUSE_CHECK(rope.original_max_position_tokens >= 1);
  }
  ROUNDHOUSE_CHECK(config.sliding_window >= 0 &&
                   config.sliding_window <= kMaxPositionTokens);
  const auto last = static_cast<size_t>(config.layer_count);
  ROUNDHOUSE_CHECK(config.sliding_window == 0 ? config.sliding_layers.none()
                                              : config.sliding_layers.any());
  ROUNDHOUSE_CHECK((config.sliding_layers >> last).none());
  ROUNDHOUSE_CHECK((config.mixture.layers >> last).none());
  ROUNDHOUSE_CHECK(config.mixture.shared_size >= 0 &&
                   config.mixture.shared_size <= kMaxIntermediateSize);
}

void CheckUnits(const ModelConfig& config) {
  // With a layer of each kind.
  int64_t sparse = 0;
  while (sparse + 1 < config.layer_count && !config.HasExperts(sparse)) {
    ++sparse;
  }
  for (int64_t unit :
       {int64_t{0}, int64_t{1}, sparse + 1, config.layer_count + 1}) {
    int64_t end = 0;
    const UnitSpec spec = ModelUnit(config, unit);
    for (const ParameterSpec& parameter : spec.parameters) {
      ROUNDHOUSE_CHECK(parameter.element_count > 0);
      ROUNDHOUSE_CHECK(parameter.unit_offset_elements >= end);
      ROUNDHOUSE_CHECK(parameter.unit_offset_elements % kTensorAlignElements ==
                       0);
      end = parameter.unit_offset_elements + parameter.element_count;
    }
    ROUNDHOUSE_CHECK(spec.element_count >= end);
  }
}

void CheckExport(const std::string& json, ModelConfig config) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto exported = ExportedConfigJson(json, dtype);
    ROUNDHOUSE_CHECK(exported.ok()) << exported.status();
    config.dtype = dtype;
    const auto again = ParseModelConfig(*exported, "exported");
    ROUNDHOUSE_CHECK(again.ok()) << again.status();
    ROUNDHOUSE_CHECK(*again == config);
  }
}

}  // namespace
}  // namespace roundhouse

// Returns 0 also for refused input: a corpus of near misses is worth keeping.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string json(reinterpret_cast<const char*>(data), size);
  const auto config = roundhouse::ParseModelConfig(json, "config.json");
  if (!config.ok()) {
    ROUNDHOUSE_CHECK(!config.status().message().empty());
    return 0;
  }
  roundhouse::CheckConfig(*config);
  roundhouse::CheckAttention(*config);
  roundhouse::CheckUnits(*config);
  roundhouse::CheckExport(json, *config);
  return 0;
}
