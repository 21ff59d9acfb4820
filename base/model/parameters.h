// From a ModelConfig to its parameters and units.
//
// A *unit* is what is uploaded, reduced and updated as one: a decoder layer,
// the embedding, the head (final norm, and the LM head's matrix where it is
// not tied).  A tied matrix is a unit of its own: the embedding's unit, which
// the head uses too.
//
//   unit 0        embed_tokens        (embedding, or the tied matrix)
//   unit 1 + l    decoder layer l
//   unit L + 1    final norm (+ lm_head when untied)
//
// A *layer* in plans and slots is 0..L-1 for decoder layers and L for the head.
#ifndef ROUNDHOUSE_BASE_MODEL_PARAMETERS_H_
#define ROUNDHOUSE_BASE_MODEL_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/model/config.h"

namespace roundhouse {

// Which matrix of a layer.  The value indexes LayerWeights (worker/model) and
// crosses process boundaries: never renumber.
enum class ParamRole : uint32_t {
  kEmbedding = 0,   // [vocab, hidden]
  kInputNorm = 1,   // [hidden]
  kQ = 2,           // [heads * head_dim, hidden]
  kK = 3,           // [kv_heads * head_dim, hidden]
  kV = 4,           // [kv_heads * head_dim, hidden]
  kO = 5,           // [hidden, heads * head_dim]
  kQNorm = 6,       // [head_dim]
  kKNorm = 7,       // [head_dim]
  kPostNorm = 8,    // [hidden]
  kGate = 9,        // [intermediate, hidden]
  kUp = 10,         // [intermediate, hidden]
  kDown = 11,       // [hidden, intermediate]
  kFinalNorm = 12,  // [hidden]
  kLmHead = 13,     // [vocab, hidden]
};
inline constexpr int kParamRoleCount = 14;

struct ParameterSpec {
  std::string
      name;  // as in the checkpoint: "model.layers.0.self_attn.q_proj.weight"
  ParamRole role;
  std::vector<int64_t> shape;
  int64_t element_count = 0;
  // Where it starts in its unit, in elements; a multiple of
  // kTensorAlignElements.
  int64_t unit_offset_elements = 0;
  bool weight_decay = true;  // false for norms and biases
};

// Tensors start at multiples of 64 elements: 64-byte aligned in every dtype.
inline constexpr int64_t kTensorAlignElements = 64;

struct UnitSpec {
  std::vector<ParameterSpec> parameters;
  int64_t element_count = 0;  // padded: a multiple of kTensorAlignElements
};

// All units in the order above.
std::vector<UnitSpec> ModelUnits(const ModelConfig& config);

// One of them.  REQUIRES: 0 <= unit <= config.layer_count + 1.
UnitSpec ModelUnit(const ModelConfig& config, int64_t unit);

// The units whose weights `layer` reads on a device: {1 + layer}; the head
// reads {L + 1} and, when tied, {0, L + 1}.
std::vector<int> UnitsOfLayer(const ModelConfig& config, int64_t layer);

// Sum of element counts without padding.
int64_t ParameterCount(const ModelConfig& config);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_PARAMETERS_H_
