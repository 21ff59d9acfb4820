#include "base/model/config.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/model/config_attention.h"
#include "base/model/config_mixture.h"
#include "base/model/family.h"
#include "base/model/json.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr JsonLimits kConfigLimits = {.max_bytes = kMaxConfigBytes,
                                      .max_depth = kMaxJsonDepth,
                                      .max_keys = kMaxJsonKeys};

absl::StatusOr<OrderedJson> ParseObject(const std::string& text,
                                        const std::string& path) {
  RETURN_IF_ERROR(CheckJson(text, path, kConfigLimits));
  OrderedJson root = OrderedJson::parse(text, nullptr, false);
  if (!root.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a JSON object"));
  }
  return root;
}

const char* ConfigDTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
  }
  return "float32";
}

absl::Status UnsupportedFamily(const JsonFields& fields, const char* field,
                               const std::string& name) {
  return fields.Unsupported(
      field, absl::StrCat(QuoteForError(name),
                          " is not supported; supported architectures: ",
                          SupportedArchitectures()));
}

// The class name decides; model_type must agree, and decides alone where
// `architectures` is absent (transformers' auto classes do the same).
absl::StatusOr<const ModelFamily*> ReadFamily(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const std::string type, fields.StringOr("model_type", ""));
  const OrderedJson* classes = fields.Find("architectures");
  if (classes == nullptr) {
    if (type.empty()) return fields.Invalid("architectures", "missing");
    const ModelFamily* family = FindFamilyByType(type);
    if (family == nullptr) return UnsupportedFamily(fields, "model_type", type);
    return family;
  }
  if (!classes->is_array() || classes->size() != 1 ||
      !classes->front().is_string()) {
    return fields.WrongType("architectures", "a list of one name", *classes);
  }
  const std::string name = classes->front().get<std::string>();
  const ModelFamily* family = FindFamilyByClass(name);
  if (family == nullptr) {
    return UnsupportedFamily(fields, "architectures", name);
  }
  if (!type.empty() && type != family->model_type) {
    return fields.Invalid(
        "model_type",
        absl::StrCat(QuoteForError(type), " does not belong to ", name,
                     ", whose type is ", family->model_type));
  }
  return family;
}

absl::Status ReadSizes(const JsonFields& fields, const ModelFamily& family,
                       ModelConfig* config) {
  ASSIGN_OR_RETURN(config->hidden_size,
                   fields.Size("hidden_size", kMaxHiddenSize));
  ASSIGN_OR_RETURN(config->layer_count,
                   fields.Size("num_hidden_layers", kMaxModelLayers));
  ASSIGN_OR_RETURN(config->head_count,
                   fields.Size("num_attention_heads", kMaxAttentionHeads));
  const bool kv_as_heads =
      fields.IsNull("num_key_value_heads") || family.default_kv_head_count == 0;
  ASSIGN_OR_RETURN(config->kv_head_count,
                   fields.SizeOr("num_key_value_heads", kMaxAttentionHeads,
                                 kv_as_heads ? config->head_count
                                             : family.default_kv_head_count));
  ASSIGN_OR_RETURN(config->intermediate_size,
                   fields.Size("intermediate_size", kMaxIntermediateSize));
  ASSIGN_OR_RETURN(config->vocab_size,
                   fields.Size("vocab_size", kMaxVocabSize));
  ASSIGN_OR_RETURN(config->max_position_tokens,
                   fields.SizeOr("max_position_embeddings", kMaxPositionTokens,
                                 family.default_max_position_tokens));
  ASSIGN_OR_RETURN(config->head_dim, fields.SizeOr("head_dim", kMaxHeadDim,
                                                   family.default_head_dim));
  return absl::OkStatus();
}

absl::Status CheckHeads(const JsonFields& fields, ModelConfig* config) {
  if (config->head_dim == 0) {  // the family derives it
    if (config->hidden_size % config->head_count != 0) {
      return fields.Invalid("head_dim",
                            "missing, and hidden_size is not a multiple of "
                            "num_attention_heads");
    }
    config->head_dim = config->hidden_size / config->head_count;
  }
  if (config->head_dim % 2 != 0 || config->head_dim > kMaxHeadDim) {
    return fields.Invalid(
        "head_dim", absl::StrCat(config->head_dim,
                                 " is not an even number up to ", kMaxHeadDim));
  }
  if (config->head_count % config->kv_head_count != 0) {
    const bool given = fields.Has("num_key_value_heads");
    return fields.Invalid(
        "num_key_value_heads",
        absl::StrCat(config->kv_head_count, given ? "" : ", its default,",
                     " does not divide num_attention_heads, which is ",
                     config->head_count));
  }
  return absl::OkStatus();
}

// What would change the computation and is not implemented is refused by name.
absl::Status CheckFeatures(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const std::string activation,
                   fields.StringOr("hidden_act", "silu"));
  if (activation != "silu") {
    return fields.Unsupported(
        "hidden_act", absl::StrCat(QuoteForError(activation),
                                   " is not supported; supported: silu"));
  }
  ASSIGN_OR_RETURN(const double dropout,
                   fields.NumberOr("attention_dropout", 0.0));
  if (dropout != 0.0) {
    return fields.Unsupported(
        "attention_dropout",
        absl::StrCat(dropout, " is not supported; supported: 0"));
  }
  if (fields.Has("quantization_config")) {
    return fields.Unsupported("quantization_config",
                              "quantized checkpoints are not supported");
  }
  return absl::OkStatus();
}

absl::Status ReadDType(const JsonFields& fields, ModelConfig* config) {
  ASSIGN_OR_RETURN(const std::string newer, fields.StringOr("dtype", ""));
  ASSIGN_OR_RETURN(const std::string older, fields.StringOr("torch_dtype", ""));
  if (!newer.empty() && !older.empty() && newer != older) {
    return fields.Invalid("torch_dtype",
                          absl::StrCat(QuoteForError(older),
                                       " contradicts dtype, its newer "
                                       "name, which is ",
                                       QuoteForError(newer)));
  }
  const std::string& name = newer.empty() ? older : newer;
  if (name.empty()) return absl::OkStatus();
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (name == ConfigDTypeName(dtype)) {
      config->dtype = dtype;
      return absl::OkStatus();
    }
  }
  return fields.Unsupported(
      newer.empty() ? "torch_dtype" : "dtype",
      absl::StrCat(QuoteForError(name),
                   " is not supported; supported: float32, bfloat16, float16"));
}

}  // namespace

LayerSet LayersFrom(int64_t first, int64_t count) {
  LayerSet layers;
  for (int64_t layer = first; layer < count; ++layer) {
    layers.set(static_cast<size_t>(layer));
  }
  return layers;
}

absl::StatusOr<ModelConfig> ParseModelConfig(const std::string& json,
                                             const std::string& path) {
  ASSIGN_OR_RETURN(const OrderedJson root, ParseObject(json, path));
  const JsonFields fields(root, path, "");
  ASSIGN_OR_RETURN(const ModelFamily* family, ReadFamily(fields));
  ModelConfig config;
  config.architecture = family->architecture;
  RETURN_IF_ERROR(ReadSizes(fields, *family, &config));
  RETURN_IF_ERROR(CheckHeads(fields, &config));
  RETURN_IF_ERROR(ReadRope(fields, path, *family, &config));
  RETURN_IF_ERROR(ReadBiases(fields, *family, &config));
  RETURN_IF_ERROR(ReadSlidingWindow(fields, *family, &config));
  RETURN_IF_ERROR(ReadMixture(fields, *family, &config));
  RETURN_IF_ERROR(CheckFeatures(fields));
  RETURN_IF_ERROR(ReadDType(fields, &config));
  ASSIGN_OR_RETURN(
      config.rms_norm_eps,
      fields.PositiveOr("rms_norm_eps", family->default_rms_norm_eps));
  ASSIGN_OR_RETURN(config.initializer_range,
                   fields.PositiveOr("initializer_range",
                                     family->default_initializer_range));
  ASSIGN_OR_RETURN(config.tie_word_embeddings,
                   fields.BoolOr("tie_word_embeddings",
                                 family->default_tie_word_embeddings));
  return config;
}

absl::StatusOr<std::string> ExportedConfigJson(const std::string& json,
                                               DType dtype) {
  ASSIGN_OR_RETURN(OrderedJson root, ParseObject(json, "config.json"));
  const char* name = ConfigDTypeName(dtype);
  if (root.contains("torch_dtype")) root["torch_dtype"] = name;
  if (root.contains("dtype") || !root.contains("torch_dtype")) {
    root["dtype"] = name;
  }
  return root.dump(2) + "\n";
}

}  // namespace roundhouse
