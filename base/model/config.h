// A model's architecture as its Hugging Face config.json states it.
//
// Both spellings of config.json are read (rope_parameters or rope_theta,
// dtype or torch_dtype).  An architecture, activation, rope type or dtype that
// this build cannot train is an UNIMPLEMENTED error naming the field and value,
// a malformed or inconsistent file is INVALID_ARGUMENT.
#ifndef ROUNDHOUSE_BASE_MODEL_CONFIG_H_
#define ROUNDHOUSE_BASE_MODEL_CONFIG_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/limits.h"

namespace roundhouse {

// `model_init`: weights read from the model directory, or drawn by the job.
enum class ModelInit { kPretrained, kRandom };

// The values cross process boundaries: never renumber.
enum class Architecture : uint32_t {
  kQwen3 = 1,
  kLlama = 2,
  kQwen2 = 3,
  kMistral = 4,
  kQwen3Moe = 5,
  kMixtral = 6,
  kQwen2Moe = 7,
};

// How rotary frequencies are changed for contexts longer than the model was
// first trained on.  The values cross process boundaries: never renumber.
enum class RopeType : uint32_t { kDefault = 0, kLinear = 1, kLlama3 = 2 };

// config.json: rope_scaling or rope_parameters, transformers' names.
struct RopeScaling {
  RopeType type = RopeType::kDefault;
  double factor = 1;            // kLinear, kLlama3
  double low_freq_factor = 1;   // kLlama3, as all below
  double high_freq_factor = 1;  // above low_freq_factor
  int64_t original_max_position_tokens = 0;

  bool operator==(const RopeScaling&) const = default;
};

// Some of a model's decoder layers, by number.
using LayerSet = std::bitset<static_cast<size_t>(kMaxModelLayers)>;

// An expert's number, below kMaxExperts.
using ExpertPick = int16_t;
// How many of a micro-batch's tokens go to an expert.
using ExpertLoad = uint32_t;
// What the picks of so many tokens take in so many layers with experts.
constexpr uint64_t PickBytes(uint64_t layers, uint64_t tokens,
                             uint64_t experts_per_token) {
  return layers * tokens * experts_per_token * sizeof(ExpertPick);
}
// And the loads of their experts.
constexpr uint64_t LoadBytes(uint64_t layers, uint64_t experts) {
  return layers * experts * sizeof(ExpertLoad);
}

// A mixture of experts (Shazeer et al., arXiv 1701.06538) in place of the MLP
// of some decoder layers: a router picks experts_per_token of expert_count MLPs
// for each token, and their outputs add up with the router's weights.
struct MixtureConfig {
  int64_t expert_count = 0;  // 0: the model has no experts, and the rest is 0
  int64_t experts_per_token = 0;  // 1 .. expert_count
  int64_t expert_size = 0;        // an expert's inner width
  // An MLP that every token goes through beside its experts has this inner
  // width; its output is multiplied by a gate's sigmoid.  0: there is none.
  int64_t shared_size = 0;
  // The picked experts' probabilities are divided by their sum.
  bool renormalize = false;
  // config.json asks for transformers' auxiliary loss, which no job has.
  bool auxiliary_loss = false;
  LayerSet layers;  // that have experts; the others have a dense MLP

  bool present() const { return expert_count > 0; }
  bool operator==(const MixtureConfig&) const = default;
};

// Every size is in elements.  Values are checked: positive, within the limits
// of base/limits.h, heads a multiple of kv_heads.
struct ModelConfig {
  Architecture architecture = Architecture::kQwen3;
  int64_t hidden_size = 0;
  int64_t layer_count = 0;  // decoder layers
  int64_t head_count = 0;
  int64_t kv_head_count = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;  // of dense MLPs
  int64_t vocab_size = 0;
  int64_t max_position_tokens = 0;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool query_key_value_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;     // of all three matrices
  // sliding_layers attend to a position and the sliding_window - 1 before it,
  // the others to all before it.  0: there are no such layers.
  int64_t sliding_window = 0;
  LayerSet sliding_layers;
  MixtureConfig mixture;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  DType dtype = DType::kF32;  // of the files; kF32 where config.json is silent

  // How many tokens, itself included, one of `layer` attends to at most; 0: all
  // before it.
  int64_t WindowOf(int64_t layer) const {
    return sliding_layers[static_cast<size_t>(layer)] ? sliding_window : 0;
  }
  bool HasExperts(int64_t layer) const {
    return mixture.layers[static_cast<size_t>(layer)];
  }
  // The inner widths of all that a token of `layer` goes through.
  int64_t ActiveInner(int64_t layer) const {
    const int64_t experts =
        HasExperts(layer) ? mixture.experts_per_token * mixture.expert_size : 0;
    return MlpSize(layer) + experts;
  }
  // The inner width of the MLP that every token of `layer` goes through; 0: it
  // has experts only.
  int64_t MlpSize(int64_t layer) const {
    return HasExperts(layer) ? mixture.shared_size : intermediate_size;
  }
  bool operator==(const ModelConfig&) const = default;
};

// The layers first .. count - 1.
LayerSet LayersFrom(int64_t first, int64_t count);

// Parses config.json's text; `path` names the file in errors.
absl::StatusOr<ModelConfig> ParseModelConfig(const std::string& json,
                                             const std::string& path);

// config.json's text with `dtype` replaced by that of an export (both
// spellings), everything else kept as it was.
absl::StatusOr<std::string> ExportedConfigJson(const std::string& json,
                                               DType dtype);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_CONFIG_H_
