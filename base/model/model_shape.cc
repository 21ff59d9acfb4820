#include "base/model/model_shape.h"

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/model/family.h"
#include "base/model/json.h"
#include "base/model/parameters.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr JsonLimits kLimits = {.max_bytes = kMaxConfigBytes,
                                .max_depth = kMaxJsonDepth,
                                .max_keys = kMaxJsonKeys};

// What a family's decoder layer has beside attention and expert matrices.
struct MixtureFamily {
  const char* class_name;
  const char* model_type;
  int64_t default_head_dim;  // 0: hidden_size / num_attention_heads
  bool query_key_norm;       // an RMS norm per query and key head
  bool biases;               // of attention, router and experts
  bool sinks;                // a number a query head
};
constexpr MixtureFamily kMixtures[] = {
    {.class_name = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .default_head_dim = 0,
     .query_key_norm = true,
     .biases = false,
     .sinks = false},
    {.class_name = "GptOssForCausalLM",
     .model_type = "gpt_oss",
     .default_head_dim = 64,
     .query_key_norm = false,
     .biases = true,
     .sinks = true},
};

// Null: no mixture; then the parser of trainable families speaks.
const MixtureFamily* FindMixture(const OrderedJson& root) {
  const auto classes = root.find("architectures");
  const bool named = classes != root.end() && classes->is_array() &&
                     classes->size() == 1 && classes->front().is_string();
  const auto type = root.find("model_type");
  for (const MixtureFamily& family : kMixtures) {
    if (named ? classes->front() == family.class_name
              : type != root.end() && *type == family.model_type) {
      return &family;
    }
  }
  return nullptr;
}

absl::Status CheckType(const JsonFields& fields, const MixtureFamily& family) {
  ASSIGN_OR_RETURN(const std::string type,
                   fields.StringOr("model_type", family.model_type));
  if (type == family.model_type) return absl::OkStatus();
  return fields.Invalid(
      "model_type",
      absl::StrCat(QuoteForError(type), " does not belong to ",
                   family.class_name, ", whose type is ", family.model_type));
}

absl::Status ReadSizes(const JsonFields& fields, const MixtureFamily& family,
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
  if (shape->head_dim == 0) {
    shape->head_dim = shape->hidden_size / shape->head_count;
  }
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

absl::Status ReadExperts(const JsonFields& fields, ModelShape* shape) {
  // Either name may stand in either family's file.
  const char* const count =
      fields.Has("num_local_experts") ? "num_local_experts" : "num_experts";
  ASSIGN_OR_RETURN(shape->expert_count, fields.Size(count, kMaxExperts));
  ASSIGN_OR_RETURN(shape->experts_per_token,
                   fields.Size("num_experts_per_tok", kMaxExperts));
  if (shape->experts_per_token > shape->expert_count) {
    return fields.Invalid(
        "num_experts_per_tok",
        absl::StrCat(shape->experts_per_token, " is more than ", count,
                     ", which is ", shape->expert_count));
  }
  const char* const inner = fields.Has("moe_intermediate_size")
                                ? "moe_intermediate_size"
                                : "intermediate_size";
  ASSIGN_OR_RETURN(shape->inner_size, fields.Size(inner, kMaxIntermediateSize));
  return absl::OkStatus();
}

// A dense layer between sparse ones costs something else than they do.
absl::Status CheckLayersAlike(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const int64_t step,
                   fields.SizeOr("decoder_sparse_step", kMaxModelLayers, 1));
  const OrderedJson* const dense = fields.Find("mlp_only_layers");
  if (step == 1 && (dense == nullptr || dense->empty())) {
    return absl::OkStatus();
  }
  return fields.Unsupported(
      step == 1 ? "mlp_only_layers" : "decoder_sparse_step",
      "layers without experts between those with experts are not supported");
}

absl::StatusOr<int64_t> CountSliding(const JsonFields& fields,
                                     int64_t layer_count) {
  const OrderedJson* const types = fields.Find("layer_types");
  if (types == nullptr) return (layer_count + 1) / 2;  // every other, first on
  if (!types->is_array() ||
      static_cast<int64_t>(types->size()) != layer_count) {
    return fields.Invalid("layer_types",
                          absl::StrCat("expected a list of ", layer_count,
                                       " names, one per layer"));
  }
  int64_t sliding = 0;
  for (const OrderedJson& type : *types) {
    if (type != "sliding_attention" && type != "full_attention") {
      return fields.Unsupported(
          "layer_types", absl::StrCat(QuoteForError(type.dump()),
                                      " is not supported; supported: "
                                      "full_attention, sliding_attention"));
    }
    sliding += type == "sliding_attention" ? 1 : 0;
  }
  return sliding;
}

absl::Status ReadWindow(const JsonFields& fields, const MixtureFamily& family,
                        ModelShape* shape) {
  // Qwen3-MoE has windows only where its flag says so, GPT-OSS always.
  ASSIGN_OR_RETURN(const bool used,
                   fields.BoolOr("use_sliding_window", family.sinks));
  if (!used || !fields.Has("sliding_window")) return absl::OkStatus();
  ASSIGN_OR_RETURN(shape->sliding_window,
                   fields.Size("sliding_window", kMaxPositionTokens));
  ASSIGN_OR_RETURN(shape->sliding_layer_count,
                   CountSliding(fields, shape->layer_count));
  return absl::OkStatus();
}

void CountParameters(const MixtureFamily& family, ModelShape* shape) {
  const int64_t hidden = shape->hidden_size;
  const int64_t query = shape->head_count * shape->head_dim;
  const int64_t key = shape->kv_head_count * shape->head_dim;
  const int64_t experts = shape->expert_count;
  shape->router_parameters = experts * hidden;
  int64_t count = shape->attention_matrix_elements() +
                  experts * shape->expert_matrix_elements() +
                  shape->router_parameters + 2 * hidden;
  if (family.query_key_norm) count += 2 * shape->head_dim;
  if (family.sinks) count += shape->head_count;
  if (family.biases) {
    count += query + 2 * key + hidden + experts;
    count += experts * (2 * shape->inner_size + hidden);
  }
  shape->layer_parameters = count;
}

absl::StatusOr<ModelShape> ReadMixture(const JsonFields& fields,
                                       const MixtureFamily& family) {
  ModelShape shape;
  shape.model_type = family.model_type;
  RETURN_IF_ERROR(CheckType(fields, family));
  RETURN_IF_ERROR(ReadSizes(fields, family, &shape));
  RETURN_IF_ERROR(ReadExperts(fields, &shape));
  RETURN_IF_ERROR(CheckLayersAlike(fields));
  RETURN_IF_ERROR(ReadWindow(fields, family, &shape));
  CountParameters(family, &shape);
  return shape;
}

}  // namespace

int64_t ModelShape::parameter_count() const {
  return embedding_parameters() + layer_count * layer_parameters + hidden_size +
         (tie_word_embeddings ? 0 : embedding_parameters());
}

int64_t ModelShape::attention_matrix_elements() const {
  return 2 * hidden_size * (head_count + kv_head_count) * head_dim;
}

int64_t ModelShape::expert_matrix_elements() const {
  return 3 * hidden_size * inner_size;
}

int64_t ModelShape::active_matrix_elements() const {
  return attention_matrix_elements() + router_parameters +
         experts_per_token * expert_matrix_elements();
}

ModelShape ShapeOfConfig(const ModelConfig& config) {
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
  if (config.sliding_window > 0) {
    shape.sliding_layer_count = config.layer_count - config.first_sliding_layer;
  }
  shape.tie_word_embeddings = config.tie_word_embeddings;
  for (const ParameterSpec& spec : ModelUnit(config, 1).parameters) {
    shape.layer_parameters += spec.element_count;
  }
  return shape;
}

absl::StatusOr<ModelShape> ParseModelShape(const std::string& json,
                                           const std::string& path) {
  RETURN_IF_ERROR(CheckJson(json, path, kLimits));
  const OrderedJson root = OrderedJson::parse(json, nullptr, false);
  const MixtureFamily* const family =
      root.is_object() ? FindMixture(root) : nullptr;
  if (family != nullptr) {
    return ReadMixture(JsonFields(root, path, ""), *family);
  }
  ASSIGN_OR_RETURN(const ModelConfig config, ParseModelConfig(json, path));
  return ShapeOfConfig(config);
}

}  // namespace roundhouse
