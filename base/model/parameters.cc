#include "base/model/parameters.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
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
  // Every matrix decays; vectors are norms and biases.
  spec.weight_decay = shape.size() > 1;
  spec.shape = std::move(shape);
  spec.unit_offset_elements = unit->element_count;
  unit->element_count += RoundUp(spec.element_count);
  unit->parameters.push_back(std::move(spec));
}

struct MatrixShape {
  int64_t out;
  int64_t in;
};

MatrixShape LinearShape(const ModelConfig& config, int64_t layer,
                        ParamRole matrix) {
  const int64_t hidden = config.hidden_size;
  const int64_t query = config.head_count * config.head_dim;
  const int64_t inner = config.MlpSize(layer);
  switch (matrix) {
    case ParamRole::kQ:
      return {query, hidden};
    case ParamRole::kO:
      return {hidden, query};
    case ParamRole::kGate:
    case ParamRole::kUp:
      return {inner, hidden};
    case ParamRole::kDown:
      return {hidden, inner};
    default:
      ROUNDHOUSE_CHECK(matrix == ParamRole::kK || matrix == ParamRole::kV);
      return {config.kv_head_count * config.head_dim, hidden};
  }
}

bool HasBias(const ModelConfig& config, ParamRole matrix) {
  const int index = LinearIndex(matrix);
  if (index < LinearIndex(ParamRole::kO)) return config.query_key_value_bias;
  return matrix == ParamRole::kO ? config.output_bias : config.mlp_bias;
}

// The router and the experts of one layer.
void AddMixture(const ModelConfig& config, const std::string& prefix,
                UnitSpec* unit) {
  const MixtureConfig& mixture = config.mixture;
  const ExpertFamily& names = *FamilyOf(config.architecture).experts;
  const int64_t hidden = config.hidden_size;
  const auto suffix = [](const char* matrix) {
    return absl::StrCat(".", matrix, ".weight");
  };
  const std::string experts = prefix + names.experts;
  Add(unit, absl::StrCat(prefix, names.router, ".weight"), ParamRole::kRouter,
      {mixture.expert_count, hidden});
  Add(unit, experts + ".gate_up_proj", ParamRole::kExpertsGateUp,
      {mixture.expert_count, 2 * mixture.expert_size, hidden});
  unit->parameters.back().experts = {experts + ".",
                                     {suffix(names.gate), suffix(names.up)}};
  Add(unit, experts + ".down_proj", ParamRole::kExpertsDown,
      {mixture.expert_count, hidden, mixture.expert_size});
  unit->parameters.back().experts = {experts + ".", {suffix(names.down)}};
}

// Appends the tensors of a parameter that is stored expert by expert.
void AddExpertTensors(const ParameterSpec& spec,
                      std::vector<StoredTensor>* tensors) {
  const std::vector<std::string>& suffixes = spec.experts.suffixes;
  const std::vector<int64_t> shape = {
      spec.shape[1] / static_cast<int64_t>(suffixes.size()), spec.shape[2]};
  const int64_t elements = shape[0] * shape[1];
  int64_t offset = spec.unit_offset_elements;
  for (int64_t expert = 0; expert < spec.shape[0]; ++expert) {
    for (const std::string& suffix : suffixes) {
      tensors->push_back({absl::StrCat(spec.experts.prefix, expert, suffix),
                          shape, elements, offset});
      offset += elements;
    }
  }
}

// The matrix's module, as LinearName has it but for those of an MLP beside
// experts: "mlp.shared_expert.up_proj".
std::string LinearModule(const ModelConfig& config, int64_t layer,
                         ParamRole matrix) {
  const std::string usual = LinearName(matrix);
  if (!config.HasExperts(layer) ||
      LinearIndex(matrix) < LinearIndex(ParamRole::kGate)) {
    return usual;
  }
  const char* const shared = FamilyOf(config.architecture).experts->shared;
  ROUNDHOUSE_CHECK(shared != nullptr) << usual;
  return shared + usual.substr(usual.find('.'));
}

std::string LayerPrefix(int64_t layer) {
  return absl::StrCat("model.layers.", layer, ".");
}

UnitSpec EmbeddingUnit(const ModelConfig& config) {
  UnitSpec unit;
  Add(&unit, "model.embed_tokens.weight", ParamRole::kEmbedding,
      {config.vocab_size, config.hidden_size});
  return unit;
}

UnitSpec DecoderUnit(const ModelConfig& config, int64_t layer) {
  const std::string prefix = LayerPrefix(layer);
  const int64_t hidden = config.hidden_size;
  UnitSpec unit;
  const auto add = [&](absl::string_view name, ParamRole role,
                       std::vector<int64_t> shape) {
    Add(&unit, absl::StrCat(prefix, name, ".weight"), role, std::move(shape));
  };
  const auto add_linear = [&](ParamRole role) {
    const auto [out, in] = LinearShape(config, layer, role);
    const std::string name = LinearModule(config, layer, role);
    add(name, role, {out, in});
    if (HasBias(config, role)) {
      Add(&unit, absl::StrCat(prefix, name, ".bias"), BiasOf(role), {out});
    }
  };
  add("input_layernorm", ParamRole::kInputNorm, {hidden});
  for (ParamRole role :
       {ParamRole::kQ, ParamRole::kK, ParamRole::kV, ParamRole::kO}) {
    add_linear(role);
  }
  if (FamilyOf(config.architecture).query_key_norm) {
    add("self_attn.q_norm", ParamRole::kQNorm, {config.head_dim});
    add("self_attn.k_norm", ParamRole::kKNorm, {config.head_dim});
  }
  add("post_attention_layernorm", ParamRole::kPostNorm, {hidden});
  if (config.HasExperts(layer)) AddMixture(config, prefix, &unit);
  if (config.MlpSize(layer) == 0) return unit;
  for (ParamRole role : {ParamRole::kGate, ParamRole::kUp, ParamRole::kDown}) {
    add_linear(role);
  }
  if (config.HasExperts(layer)) {
    add(FamilyOf(config.architecture).experts->shared_gate,
        ParamRole::kSharedGate, {1, hidden});
  }
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

std::vector<StoredTensor> StoredTensors(const UnitSpec& unit) {
  std::vector<StoredTensor> tensors;
  for (const ParameterSpec& spec : unit.parameters) {
    if (spec.experts.suffixes.empty()) {
      tensors.push_back({spec.name, spec.shape, spec.element_count,
                         spec.unit_offset_elements});
    } else {
      AddExpertTensors(spec, &tensors);
    }
  }
  return tensors;
}

int64_t StoredTensorCount(const UnitSpec& unit) {
  int64_t count = 0;
  for (const ParameterSpec& spec : unit.parameters) {
    const auto parts = static_cast<int64_t>(spec.experts.suffixes.size());
    count += parts == 0 ? 1 : parts * spec.shape[0];
  }
  return count;
}

const char* LinearName(ParamRole matrix) {
  static constexpr const char* kNames[kLinearRoleCount] = {
      "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
      "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
      "mlp.down_proj"};
  return kNames[LinearIndex(matrix)];
}

std::vector<std::string> TargetModuleNames(uint32_t targets) {
  std::vector<std::string> names;
  for (int i = 0; i < kLinearRoleCount; ++i) {
    const std::string path = LinearName(kLinearRoles[i]);
    if (targets >> i & 1) names.push_back(path.substr(path.find('.') + 1));
  }
  return names;
}

absl::StatusOr<uint32_t> TargetsOf(uint32_t targets, bool has_experts) {
  if (targets == kAllLinear) {
    return has_experts ? kAttentionTargets : kAllLinearTargets;
  }
  const uint32_t of_mlp = targets & ~kAttentionTargets;
  if (!has_experts || of_mlp == 0) return targets;
  return absl::InvalidArgumentError(absl::StrCat(
      absl::StrJoin(TargetModuleNames(of_mlp), ", "),
      ": a model with experts has adapters of its attention only; all-linear "
      "is ",
      absl::StrJoin(TargetModuleNames(kAttentionTargets), ", ")));
}

uint32_t TargetModuleBit(const std::string& name) {
  for (int i = 0; i < kLinearRoleCount; ++i) {
    const uint32_t bit = 1u << i;
    if (name == LinearName(kLinearRoles[i]) ||
        name == TargetModuleNames(bit).front()) {
      return bit;
    }
  }
  return 0;
}

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

absl::Status CheckAdapter(const AdapterConfig& adapter) {
  constexpr uint32_t kAllTargets = (1u << kLinearRoleCount) - 1;
  if (adapter.rank == 0) return absl::OkStatus();
  if (adapter.rank > 0 && adapter.targets != 0 &&
      adapter.targets <= kAllTargets && std::isfinite(adapter.alpha) &&
      adapter.dropout >= 0 && adapter.dropout < 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "adapter of rank ", adapter.rank, ", alpha ", adapter.alpha, ", dropout ",
      adapter.dropout, ", targets ", adapter.targets));
}

UnitSpec AdapterUnit(const ModelConfig& config, const AdapterConfig& adapter,
                     int64_t layer) {
  ROUNDHOUSE_CHECK(adapter.present() && layer >= 0 &&
                   layer < config.layer_count)
      << layer;
  UnitSpec unit;
  for (ParamRole matrix : kLinearRoles) {
    if (!adapter.Targets(matrix)) continue;
    const auto [out, in] = LinearShape(config, layer, matrix);
    const std::string module =
        absl::StrCat("base_model.model.", LayerPrefix(layer),
                     LinearModule(config, layer, matrix));
    Add(&unit, module + ".lora_A.weight", LoraAOf(matrix), {adapter.rank, in});
    Add(&unit, module + ".lora_B.weight", LoraBOf(matrix), {out, adapter.rank});
  }
  return unit;
}

std::vector<UnitSpec> TrainingUnits(const ModelConfig& config,
                                    const AdapterConfig& adapter) {
  std::vector<UnitSpec> units = ModelUnits(config);
  for (int64_t l = 0; adapter.present() && l < config.layer_count; ++l) {
    units.push_back(AdapterUnit(config, adapter, l));
  }
  return units;
}

std::vector<int> TrainingUnitsOfLayer(const ModelConfig& config,
                                      const AdapterConfig& adapter,
                                      int64_t layer) {
  std::vector<int> units = UnitsOfLayer(config, layer);
  if (adapter.present() && layer < config.layer_count) {
    units.push_back(static_cast<int>(config.layer_count + 2 + layer));
  }
  return units;
}

bool IsTrainable(const ModelConfig& config, const AdapterConfig& adapter,
                 int64_t unit) {
  return !adapter.present() || unit >= config.layer_count + 2;
}

DType UnitDType(const ModelConfig& config, DType model, int64_t unit) {
  return unit >= config.layer_count + 2 ? DType::kF32 : model;
}

int64_t ParameterCount(const ModelConfig& config) {
  return TrainableParameterCount(config, AdapterConfig());
}

int64_t TrainableParameterCount(const ModelConfig& config,
                                const AdapterConfig& adapter) {
  const std::vector<UnitSpec> units = TrainingUnits(config, adapter);
  int64_t count = 0;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    if (!IsTrainable(config, adapter, static_cast<int64_t>(unit))) continue;
    for (const ParameterSpec& spec : units[unit].parameters) {
      count += spec.element_count;
    }
  }
  return count;
}

}  // namespace roundhouse
