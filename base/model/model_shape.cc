#include "base/model/model_shape.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/model/config_attention.h"
#include "base/model/config_mixture.h"
#include "base/model/family.h"
#include "base/model/json.h"
#include "base/model/parameters.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr JsonLimits kLimits = {.max_bytes = kMaxConfigBytes,
                                .max_depth = kMaxJsonDepth,
                                .max_keys = kMaxJsonKeys};

// A family that is planned for and not trained.
struct PlannedFamily {
  const char* class_name;
  const char* model_type;
  int64_t default_head_dim;
  ExpertFamily experts;
};
// Biases of attention, router and experts, and a sink a query head.
constexpr PlannedFamily kPlanned[] = {
    {.class_name = "GptOssForCausalLM",
     .model_type = "gpt_oss",
     .default_head_dim = 64,
     .experts = {.router = "mlp.router",
                 .experts = "mlp.experts",
                 .count_field = "num_local_experts",
                 .size_field = "intermediate_size"}}};

// Null: none such; then the parser of trainable families speaks.
const PlannedFamily* FindPlanned(const OrderedJson& root) {
  const auto classes = root.find("architectures");
  const bool named = classes != root.end() && classes->is_array() &&
                     classes->size() == 1 && classes->front().is_string();
  const auto type = root.find("model_type");
  for (const PlannedFamily& family : kPlanned) {
    if (named ? classes->front() == family.class_name
              : type != root.end() && *type == family.model_type) {
      return &family;
    }
  }
  return nullptr;
}

absl::Status CheckType(const JsonFields& fields, const PlannedFamily& family) {
  ASSIGN_OR_RETURN(const std::string type,
                   fields.StringOr("model_type", family.model_type));
  if (type == family.model_type) return absl::OkStatus();
  return fields.Invalid(
      "model_type",
      absl::StrCat(QuoteForError(type), " does not belong to ",
                   family.class_name, ", whose type is ", family.model_type));
}

absl::Status ReadSizes(const JsonFields& fields, const PlannedFamily& family,
                       ModelShape* shape) {
  ASSIGN_OR_RETURN(shape->hidden_size,
                   fields.Size("hidden_size", kMaxHiddenSize));
  ASSIGN_OR_RETURN(shape->layer_count,
                   fields.Size("num_hidden_layers", kMaxModelLayers));
  ASSIGN_OR_RETURN(shape->head_count,
                   fields.Size("num_attention_heads", kMaxAttentionHeads));
  ASSIGN_OR_RETURN(shape->kv_head_count,
                   fields.Size("num_key_value_heads", kMaxAttentionHeads));
  ASSIGN_OR_RETURN(shape->head_dim, fields.SizeOr("head_dim", kMaxHeadDim,
                                                  family.default_head_dim));
  ASSIGN_OR_RETURN(shape->vocab_size, fields.Size("vocab_size", kMaxVocabSize));
  ASSIGN_OR_RETURN(shape->max_position_tokens,
                   fields.Size("max_position_embeddings", kMaxPositionTokens));
  ASSIGN_OR_RETURN(shape->tie_word_embeddings,
                   fields.BoolOr("tie_word_embeddings", false));
  if (shape->head_dim < 1 || shape->head_count % shape->kv_head_count != 0) {
    return fields.Invalid(
        "num_key_value_heads",
        absl::StrCat(shape->kv_head_count, " with ", shape->head_count,
                     " heads of width ", shape->head_dim));
  }
  return absl::OkStatus();
}

absl::Status ReadWindow(const JsonFields& fields, ModelShape* shape) {
  if (!fields.Has("sliding_window")) return absl::OkStatus();
  ASSIGN_OR_RETURN(shape->sliding_window,
                   fields.Size("sliding_window", kMaxPositionTokens));
  ASSIGN_OR_RETURN(const std::optional<LayerSet> by_types,
                   ReadLayerTypes(fields, shape->layer_count));
  if (by_types.has_value()) {
    shape->sliding_layers = *by_types;
    return absl::OkStatus();
  }
  // Every other one, the first on.
  for (int64_t layer = 0; layer < shape->layer_count; layer += 2) {
    shape->sliding_layers.set(static_cast<size_t>(layer));
  }
  return absl::OkStatus();
}

void CountParameters(ModelShape* shape) {
  const int64_t hidden = shape->hidden_size;
  const int64_t query = shape->head_count * shape->head_dim;
  const int64_t key = shape->kv_head_count * shape->head_dim;
  const int64_t experts = shape->expert_count;
  shape->router_parameters = experts * hidden;
  const int64_t biases = query + 2 * key + hidden + experts +
                         experts * (2 * shape->inner_size + hidden);
  shape->layer_parameters = shape->attention_matrix_elements() +
                            experts * shape->expert_matrix_elements() +
                            shape->router_parameters + 2 * hidden +
                            shape->head_count + biases;
}

absl::StatusOr<ModelShape> ReadPlanned(const JsonFields& fields,
                                       const PlannedFamily& family) {
  ModelShape shape;
  shape.model_type = family.model_type;
  RETURN_IF_ERROR(CheckType(fields, family));
  RETURN_IF_ERROR(ReadSizes(fields, family, &shape));
  MixtureConfig mixture;
  RETURN_IF_ERROR(ReadExperts(fields, family.experts, &mixture));
  shape.has_experts = true;
  shape.expert_count = mixture.expert_count;
  shape.experts_per_token = mixture.experts_per_token;
  shape.inner_size = mixture.expert_size;
  RETURN_IF_ERROR(ReadWindow(fields, &shape));
  CountParameters(&shape);
  return shape;
}

}  // namespace

int64_t ModelShape::parameter_count() const {
  const auto dense = static_cast<int64_t>(dense_layers.count());
  return embedding_parameters() + (layer_count - dense) * layer_parameters +
         dense * dense_layer_parameters + hidden_size +
         (tie_word_embeddings ? 0 : embedding_parameters());
}

int64_t ModelShape::most_layer_parameters() const {
  const auto dense = static_cast<int64_t>(dense_layers.count());
  return std::max(dense < layer_count ? layer_parameters : 0,
                  dense_layer_parameters);
}

int64_t ModelShape::attention_matrix_elements() const {
  return 2 * hidden_size * (head_count + kv_head_count) * head_dim;
}

int64_t ModelShape::expert_matrix_elements() const {
  return 3 * hidden_size * inner_size;
}

int64_t ModelShape::ActiveInner(int64_t layer) const {
  return dense_layers[static_cast<size_t>(layer)]
             ? dense_inner_size
             : experts_per_token * inner_size + shared_inner_size;
}

int64_t ModelShape::ActiveMatrixElements(int64_t layer) const {
  const bool dense = dense_layers[static_cast<size_t>(layer)];
  return attention_matrix_elements() + (dense ? 0 : router_parameters) +
         3 * hidden_size * ActiveInner(layer);
}

ModelShape ShapeOfConfig(const ModelConfig& config) {
  const MixtureConfig& mixture = config.mixture;
  ModelShape shape;
  shape.model_type = FamilyOf(config.architecture).model_type;
  shape.trainable = true;
  shape.hidden_size = config.hidden_size;
  shape.layer_count = config.layer_count;
  shape.head_count = config.head_count;
  shape.kv_head_count = config.kv_head_count;
  shape.head_dim = config.head_dim;
  shape.inner_size = config.intermediate_size;
  shape.vocab_size = config.vocab_size;
  shape.max_position_tokens = config.max_position_tokens;
  shape.sliding_window = config.sliding_window;
  shape.sliding_layers = config.sliding_layers;
  shape.tie_word_embeddings = config.tie_word_embeddings;
  if (mixture.layers.any()) {
    shape.has_experts = true;
    shape.inner_size = mixture.expert_size;
    shape.expert_count = mixture.expert_count;
    shape.experts_per_token = mixture.experts_per_token;
    shape.shared_inner_size = mixture.shared_size;
    shape.router_parameters =
        (mixture.expert_count + (mixture.shared_size > 0 ? 1 : 0)) *
        config.hidden_size;
    shape.dense_layers = LayersFrom(0, config.layer_count) & ~mixture.layers;
    shape.dense_inner_size = config.intermediate_size;
  }
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    int64_t& count = shape.dense_layers[static_cast<size_t>(layer)]
                         ? shape.dense_layer_parameters
                         : shape.layer_parameters;
    if (count > 0) continue;
    for (const ParameterSpec& spec : ModelUnit(config, layer + 1).parameters) {
      count += spec.element_count;
    }
  }
  return shape;
}

absl::StatusOr<ModelShape> ParseModelShape(const std::string& json,
                                           const std::string& path) {
  RETURN_IF_ERROR(CheckJson(json, path, kLimits));
  const OrderedJson root = OrderedJson::parse(json, nullptr, false);
  const PlannedFamily* const family =
      root.is_object() ? FindPlanned(root) : nullptr;
  if (family != nullptr) {
    return ReadPlanned(JsonFields(root, path, ""), *family);
  }
  ASSIGN_OR_RETURN(const ModelConfig config, ParseModelConfig(json, path));
  return ShapeOfConfig(config);
}

}  // namespace roundhouse
