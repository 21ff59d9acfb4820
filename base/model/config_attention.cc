#include "base/model/config_attention.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/status.h"

namespace roundhouse {
namespace {

// transformers' defaults, the same in every class that has the field.
constexpr int64_t kDefaultWindowTokens = 4096;
constexpr int64_t kDefaultMaxWindowLayers = 28;

struct RopeTypeName {
  RopeType type;
  const char* name;
};
constexpr RopeTypeName kRopeTypes[] = {{RopeType::kDefault, "default"},
                                       {RopeType::kLinear, "linear"},
                                       {RopeType::kLlama3, "llama3"}};

// rope_type or its older name, type.
absl::StatusOr<RopeType> ReadRopeType(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const std::string newer, fields.StringOr("rope_type", ""));
  ASSIGN_OR_RETURN(const std::string older, fields.StringOr("type", ""));
  if (!newer.empty() && !older.empty() && newer != older) {
    return fields.Invalid(
        "type",
        absl::StrCat(QuoteForError(older), " contradicts rope_type, ",
                     "its newer name, which is ", QuoteForError(newer)));
  }
  const std::string& name = newer.empty() ? older : newer;
  if (name.empty()) return RopeType::kDefault;
  for (const RopeTypeName& known : kRopeTypes) {
    if (name == known.name) return known.type;
  }
  return fields.Unsupported(
      newer.empty() ? "type" : "rope_type",
      absl::StrCat("rope type ", QuoteForError(name),
                   " is not supported; supported: default, linear, llama3"));
}

absl::Status CheckRotaryPart(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const double part,
                   fields.NumberOr("partial_rotary_factor", 1.0));
  if (part == 1.0) return absl::OkStatus();
  return fields.Unsupported(
      "partial_rotary_factor",
      absl::StrCat(part, " is not supported; supported: 1"));
}

// transformers: original_max_position_embeddings beside the object goes before
// the one inside.
absl::Status ReadLlama3(const JsonFields& outer, const JsonFields& inner,
                        RopeScaling* scaling) {
  constexpr char kOriginal[] = "original_max_position_embeddings";
  ASSIGN_OR_RETURN(scaling->low_freq_factor, inner.Positive("low_freq_factor"));
  ASSIGN_OR_RETURN(scaling->high_freq_factor,
                   inner.Positive("high_freq_factor"));
  if (scaling->low_freq_factor >= scaling->high_freq_factor) {
    return inner.Invalid(
        "high_freq_factor",
        absl::StrCat(scaling->high_freq_factor,
                     " is not above low_freq_factor, which is ",
                     scaling->low_freq_factor));
  }
  const JsonFields& fields = outer.Has(kOriginal) ? outer : inner;
  ASSIGN_OR_RETURN(scaling->original_max_position_tokens,
                   fields.Size(kOriginal, kMaxPositionTokens));
  return absl::OkStatus();
}

// `inner` is the object of one of the two spellings.
absl::Status ReadRopeObject(const JsonFields& outer, const JsonFields& inner,
                            ModelConfig* config) {
  RETURN_IF_ERROR(CheckRotaryPart(inner));
  ASSIGN_OR_RETURN(config->rope_theta,
                   inner.PositiveOr("rope_theta", config->rope_theta));
  RopeScaling& scaling = config->rope_scaling;
  ASSIGN_OR_RETURN(scaling.type, ReadRopeType(inner));
  if (scaling.type == RopeType::kDefault) return absl::OkStatus();
  ASSIGN_OR_RETURN(scaling.factor, inner.Positive("factor"));
  if (scaling.type == RopeType::kLinear) return absl::OkStatus();
  return ReadLlama3(outer, inner, &scaling);
}

absl::StatusOr<const OrderedJson*> FindRopeObject(const JsonFields& fields,
                                                  const char* name) {
  const OrderedJson* object = fields.Find(name);
  if (object == nullptr) return object;
  if (!object->is_object()) return fields.WrongType(name, "an object", *object);
  for (const auto& [key, value] : object->items()) {
    if (!value.is_object()) continue;
    return fields.Unsupported(
        name, absl::StrCat("parameters of their own for ", QuoteForError(key),
                           " are not supported"));
  }
  return object;
}

absl::StatusOr<bool> ReadFlag(const JsonFields& fields,
                              const ModelFamily& family, const char* field,
                              bool supported) {
  ASSIGN_OR_RETURN(const bool on, fields.BoolOr(field, false));
  if (on && !supported) {
    return fields.Unsupported(
        field, absl::StrCat("true is not supported by ", family.class_name));
  }
  return on;
}

// The sliding_window that applies; 0 for none.
absl::StatusOr<int64_t> ReadWindow(const JsonFields& fields,
                                   const ModelFamily& family) {
  constexpr char kField[] = "sliding_window";
  const bool none = family.sliding_layers == SlidingLayers::kNone;
  const bool by_number = family.sliding_layers == SlidingLayers::kAll ||
                         family.sliding_layers == SlidingLayers::kAllIfGiven;
  if (family.sliding_layers == SlidingLayers::kAllIfGiven &&
      !fields.Has(kField)) {
    return 0;
  }
  if (!by_number) {
    // A family without windows has no flag either: what is given must be off.
    ASSIGN_OR_RETURN(const bool used,
                     fields.BoolOr("use_sliding_window", none));
    if (!used) return 0;
  }
  if (fields.IsNull(kField) || (none && !fields.Has(kField))) return 0;
  if (none) {
    return fields.Unsupported(
        kField, absl::StrCat("not supported by ", family.class_name));
  }
  return fields.SizeOr(kField, kMaxPositionTokens, kDefaultWindowTokens);
}

LayerSet EvenLayers() {
  LayerSet layers;
  for (size_t layer = 0; layer < layers.size(); layer += 2) layers.set(layer);
  return layers;
}

// REQUIRES: there is a window.
absl::StatusOr<LayerSet> SlidingLayersOf(
    const JsonFields& fields, const ModelFamily& family,
    const std::optional<LayerSet>& by_types, int64_t layer_count) {
  const LayerSet all = LayersFrom(0, layer_count);
  const bool even = family.sliding_layers == SlidingLayers::kEvenBelow;
  if (even || family.sliding_layers == SlidingLayers::kUpper) {
    if (by_types.has_value()) return *by_types;
    ASSIGN_OR_RETURN(const int64_t limit,
                     fields.CountOr("max_window_layers", kMaxModelLayers,
                                    kDefaultMaxWindowLayers));
    const LayerSet upper = LayersFrom(limit, layer_count);
    return even ? EvenLayers() & all & ~upper : upper;
  }
  if (by_types.value_or(all) == all) return all;
  return fields.Unsupported(
      "layer_types",
      absl::StrCat("'full_attention' beside a sliding_window is not supported ",
                   "by ", family.class_name));
}

}  // namespace

absl::StatusOr<std::optional<LayerSet>> ReadLayerTypes(const JsonFields& fields,
                                                       int64_t layer_count) {
  const OrderedJson* types = fields.Find("layer_types");
  if (types == nullptr) return std::nullopt;
  if (!types->is_array() ||
      static_cast<int64_t>(types->size()) != layer_count) {
    return fields.Invalid("layer_types",
                          absl::StrCat("expected a list of ", layer_count,
                                       " names, one per layer"));
  }
  LayerSet sliding;
  for (size_t layer = 0; layer < types->size(); ++layer) {
    const OrderedJson& type = (*types)[layer];
    if (!type.is_string())
      return fields.WrongType("layer_types", "names", type);
    const std::string name = type.get<std::string>();
    if (name != "sliding_attention" && name != "full_attention") {
      return fields.Unsupported(
          "layer_types",
          absl::StrCat(QuoteForError(name), " at layer ", layer,
                       " is not supported; supported: full_attention, "
                       "sliding_attention"));
    }
    sliding[layer] = name == "sliding_attention";
  }
  return sliding;
}

absl::Status ReadRope(const JsonFields& fields, const std::string& path,
                      const ModelFamily& family, ModelConfig* config) {
  // transformers: an object's rope_theta goes before the one beside it.
  ASSIGN_OR_RETURN(config->rope_theta,
                   fields.PositiveOr("rope_theta", family.default_rope_theta));
  if (fields.Has("rope_scaling") && fields.Has("rope_parameters")) {
    return fields.Invalid("rope_scaling",
                          "given beside rope_parameters, its newer name");
  }
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    ASSIGN_OR_RETURN(const OrderedJson* object, FindRopeObject(fields, name));
    if (object == nullptr) continue;
    RETURN_IF_ERROR(ReadRopeObject(
        fields, JsonFields(*object, path, absl::StrCat(name, ".")), config));
  }
  return CheckRotaryPart(fields);
}

absl::Status ReadBiases(const JsonFields& fields, const ModelFamily& family,
                        ModelConfig* config) {
  ASSIGN_OR_RETURN(
      const bool attention,
      ReadFlag(fields, family, "attention_bias", family.has_attention_bias));
  config->query_key_value_bias = attention || family.query_key_value_bias;
  if (family.query_key_value_bias_field != nullptr) {
    ASSIGN_OR_RETURN(config->query_key_value_bias,
                     fields.BoolOr(family.query_key_value_bias_field, true));
  }
  config->output_bias = attention;
  ASSIGN_OR_RETURN(config->mlp_bias,
                   ReadFlag(fields, family, "mlp_bias", family.has_mlp_bias));
  return absl::OkStatus();
}

absl::Status ReadSlidingWindow(const JsonFields& fields,
                               const ModelFamily& family, ModelConfig* config) {
  ASSIGN_OR_RETURN(const int64_t window, ReadWindow(fields, family));
  ASSIGN_OR_RETURN(const std::optional<LayerSet> by_types,
                   ReadLayerTypes(fields, config->layer_count));
  if (window == 0) {
    if (by_types.value_or(LayerSet()).none()) return absl::OkStatus();
    return fields.Invalid("layer_types",
                          "'sliding_attention' without a sliding window");
  }
  ASSIGN_OR_RETURN(
      config->sliding_layers,
      SlidingLayersOf(fields, family, by_types, config->layer_count));
  if (config->sliding_layers.any()) config->sliding_window = window;
  return absl::OkStatus();
}

}  // namespace roundhouse
