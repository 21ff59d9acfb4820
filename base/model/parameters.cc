#include "base/model/parameters.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/model/family.h"

namespace roundhouse {
namespace {

constexpr int64_t RoundUp(int64_t elements) {
  return (elements + kTensorAlignElements - 1) / kTensorAlignElements *
         kTensorAlignElements;
}

// Appends one parameter after those already there.
void Add(UnitSpec* unit, std::string name, ParamRole role,
         std::vector<int64_t> shape) {
  ParameterSpec spec;
  spec.name = std::move(name);
  spec.role = role;
  spec.element_count = 1;
  for (int64_t dimension : shape) spec.element_count *= dimension;
  // Every matrix decays; norms are the only vectors of a model without biases.
  spec.weight_decay = shape.size() > 1;
  spec.shape = std::move(shape);
  spec.unit_offset_elements = unit->element_count;
  unit->element_count += RoundUp(spec.element_count);
  unit->parameters.push_back(std::move(spec));
}

UnitSpec EmbeddingUnit(const ModelConfig& config) {
  UnitSpec unit;
  Add(&unit, "model.embed_tokens.weight", ParamRole::kEmbedding,
      {config.vocab_size, config.hidden_size});
  return unit;
}

UnitSpec DecoderUnit(const ModelConfig& config, int64_t layer) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const int64_t hidden = config.hidden_size;
  const int64_t query = config.head_count * config.head_dim;
  const int64_t key = config.kv_head_count * config.head_dim;
  const int64_t inner = config.intermediate_size;
  UnitSpec unit;
  const auto add = [&](const char* name, ParamRole role,
                       std::vector<int64_t> shape) {
    Add(&unit, absl::StrCat(prefix, name, ".weight"), role, std::move(shape));
  };
  add("input_layernorm", ParamRole::kInputNorm, {hidden});
  add("self_attn.q_proj", ParamRole::kQ, {query, hidden});
  add("self_attn.k_proj", ParamRole::kK, {key, hidden});
  add("self_attn.v_proj", ParamRole::kV, {key, hidden});
  add("self_attn.o_proj", ParamRole::kO, {hidden, query});
  if (FamilyOf(config.architecture).query_key_norm) {
    add("self_attn.q_norm", ParamRole::kQNorm, {config.head_dim});
    add("self_attn.k_norm", ParamRole::kKNorm, {config.head_dim});
  }
  add("post_attention_layernorm", ParamRole::kPostNorm, {hidden});
  add("mlp.gate_proj", ParamRole::kGate, {inner, hidden});
  add("mlp.up_proj", ParamRole::kUp, {inner, hidden});
  add("mlp.down_proj", ParamRole::kDown, {hidden, inner});
  return unit;
}

UnitSpec HeadUnit(const ModelConfig& config) {
  UnitSpec unit;
  Add(&unit, "model.norm.weight", ParamRole::kFinalNorm, {config.hidden_size});
  if (!config.tie_word_embeddings) {
    Add(&unit, "lm_head.weight", ParamRole::kLmHead,
        {config.vocab_size, config.hidden_size});
  }
  return unit;
}

}  // namespace

UnitSpec ModelUnit(const ModelConfig& config, int64_t unit) {
  ROUNDHOUSE_CHECK(unit >= 0 && unit <= config.layer_count + 1) << unit;
  if (unit == 0) return EmbeddingUnit(config);
  if (unit == config.layer_count + 1) return HeadUnit(config);
  return DecoderUnit(config, unit - 1);
}

std::vector<UnitSpec> ModelUnits(const ModelConfig& config) {
  std::vector<UnitSpec> units;
  units.reserve(config.layer_count + 2);
  for (int64_t unit = 0; unit < config.layer_count + 2; ++unit) {
    units.push_back(ModelUnit(config, unit));
  }
  return units;
}

std::vector<int> UnitsOfLayer(const ModelConfig& config, int64_t layer) {
  ROUNDHOUSE_CHECK(layer >= 0 && layer <= config.layer_count) << layer;
  const int unit = static_cast<int>(layer) + 1;
  if (layer == config.layer_count && config.tie_word_embeddings) {
    return {0, unit};
  }
  return {unit};
}

int64_t ParameterCount(const ModelConfig& config) {
  int64_t count = 0;
  for (const UnitSpec& unit : ModelUnits(config)) {
    for (const ParameterSpec& spec : unit.parameters) {
      count += spec.element_count;
    }
  }
  return count;
}

}  // namespace roundhouse
