// A model's sizes as planning needs them: of every family that this build
// trains, and of GPT-OSS, which it does not train yet but can say the cost of.
//
// All of it follows from config.json; no weights are read.  Pure.
#ifndef ROUNDHOUSE_BASE_MODEL_MODEL_SHAPE_H_
#define ROUNDHOUSE_BASE_MODEL_MODEL_SHAPE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/model/config.h"

namespace roundhouse {

// Sizes are in elements, counts of parameters without padding.  A dense model
// has one expert, which every token takes.
struct ModelShape {
  std::string model_type;  // config.json's: "qwen3_moe"
  bool trainable = false;  // by this build
  int64_t hidden_size = 0;
  int64_t layer_count = 0;  // decoder layers
  int64_t head_count = 0;
  int64_t kv_head_count = 0;
  int64_t head_dim = 0;
  int64_t inner_size = 0;  // of the MLP, or of one expert
  bool has_experts = false;
  int64_t expert_count = 1;
  int64_t experts_per_token = 1;
  LayerSet dense_layers;          // of a mixture, that have an MLP instead
  int64_t dense_inner_size = 0;   // of theirs
  int64_t shared_inner_size = 0;  // of the MLP beside experts; 0: none
  int64_t vocab_size = 0;
  int64_t max_position_tokens = 0;
  int64_t sliding_window = 0;  // tokens, of sliding_layers
  LayerSet sliding_layers;
  bool tie_word_embeddings = false;

  int64_t layer_parameters = 0;        // of one decoder layer, all its experts
  int64_t dense_layer_parameters = 0;  // of one of dense_layers
  // A router's matrix, and the gate of the MLP beside experts; 0: none.
  int64_t router_parameters = 0;

  bool mixture() const { return has_experts; }
  bool HasExperts(int64_t layer) const {
    return mixture() && !dense_layers[static_cast<size_t>(layer)];
  }
  int64_t WindowOf(int64_t layer) const {  // 0: none
    return sliding_layers[static_cast<size_t>(layer)] ? sliding_window : 0;
  }
  int64_t LayerParameters(int64_t layer) const {
    return dense_layers[static_cast<size_t>(layer)] ? dense_layer_parameters
                                                    : layer_parameters;
  }
  int64_t most_layer_parameters() const;  // of any decoder layer
  int64_t embedding_parameters() const { return vocab_size * hidden_size; }
  // What the head reads: final norm and matrix, also where that is tied.
  int64_t head_parameters() const {
    return hidden_size + embedding_parameters();
  }
  // Parameters of the whole model; a tied matrix counts once.
  int64_t parameter_count() const;
  // Elements of the attention's four matrices, and of one expert's three.
  int64_t attention_matrix_elements() const;
  int64_t expert_matrix_elements() const;
  // The inner width of what a token goes through in a layer, and the elements
  // of the matrices that it is multiplied with.
  int64_t ActiveInner(int64_t layer) const;
  int64_t ActiveMatrixElements(int64_t layer) const;

  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

// REQUIRES: `config` is as ParseModelConfig gives it.
ModelShape ShapeOfConfig(const ModelConfig& config);

// config.json's text, errors as ParseModelConfig's.  `path` names the file in
// them.
absl::StatusOr<ModelShape> ParseModelShape(const std::string& json,
                                           const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_MODEL_SHAPE_H_
