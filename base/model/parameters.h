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
//   unit L + 2 + l  adapters of decoder layer l, where a job trains adapters;
//                 units 0..L+1 are frozen then
//
// A *layer* in plans and slots is 0..L-1 for decoder layers and L for the head.
#ifndef ROUNDHOUSE_BASE_MODEL_PARAMETERS_H_
#define ROUNDHOUSE_BASE_MODEL_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/model/config.h"

namespace roundhouse {

// What trains: every weight, or low-rank adapters of some matrices.
enum class TrainingMethod { kFull, kLora };

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
  // Biases of the seven matrices, [out].
  kQBias = 14,
  kKBias = 15,
  kVBias = 16,
  kOBias = 17,
  kGateBias = 18,
  kUpBias = 19,
  kDownBias = 20,
  // Low-rank adapters of the seven matrices, fp32: A [rank, in], B [out, rank].
  kQLoraA = 21,
  kKLoraA = 22,
  kVLoraA = 23,
  kOLoraA = 24,
  kGateLoraA = 25,
  kUpLoraA = 26,
  kDownLoraA = 27,
  kQLoraB = 28,
  kKLoraB = 29,
  kVLoraB = 30,
  kOLoraB = 31,
  kGateLoraB = 32,
  kUpLoraB = 33,
  kDownLoraB = 34,
  // A layer with E experts of inner width I has these.
  kRouter = 35,  // [E, hidden]
  kExpertsGateUp =
      36,             // [E, 2 I, hidden], of each expert the gate's rows first
  kExpertsDown = 37,  // [E, hidden, I]
  // With an MLP of all tokens beside the experts, which has kGate to kDown: the
  // gate of its output.
  kSharedGate = 38,  // [1, hidden]
};
inline constexpr int kParamRoleCount = 39;

// The matrices of a decoder layer, in the order of their biases and adapters.
inline constexpr ParamRole kLinearRoles[] = {
    ParamRole::kQ,    ParamRole::kK,  ParamRole::kV,   ParamRole::kO,
    ParamRole::kGate, ParamRole::kUp, ParamRole::kDown};
inline constexpr int kLinearRoleCount = 7;

// Where `matrix` stands in kLinearRoles.  REQUIRES: it does.
constexpr int LinearIndex(ParamRole matrix) {
  for (int i = 0; i < kLinearRoleCount; ++i) {
    if (kLinearRoles[i] == matrix) return i;
  }
  return -1;
}
// "self_attn.q_proj": its module in a layer without experts of a checkpoint.
const char* LinearName(ParamRole matrix);

// AdapterConfig::targets with every matrix.
inline constexpr uint32_t kAllLinearTargets = (1u << kLinearRoleCount) - 1;
// The attention's: all that a model with experts can have.  Experts are no
// matrices of their own; PEFT targets them as parameters.
inline constexpr uint32_t kAttentionTargets = kAllLinearTargets & 0xf;
// What "all-linear" is before the model is known.
inline constexpr uint32_t kAllLinear = 1u << 31;
// `targets`, with kAllLinear as the model has it.  INVALID_ARGUMENT naming what
// a model with experts cannot have.
absl::StatusOr<uint32_t> TargetsOf(uint32_t targets, bool has_experts);
// "q_proj" of each matrix in `targets`, in their order.
std::vector<std::string> TargetModuleNames(uint32_t targets);
// The bit of "q_proj" or "self_attn.q_proj"; 0 for what names no matrix.
uint32_t TargetModuleBit(const std::string& name);

constexpr ParamRole BiasOf(ParamRole matrix) {
  return static_cast<ParamRole>(static_cast<int>(ParamRole::kQBias) +
                                LinearIndex(matrix));
}
constexpr ParamRole LoraAOf(ParamRole matrix) {
  return static_cast<ParamRole>(static_cast<int>(ParamRole::kQLoraA) +
                                LinearIndex(matrix));
}
constexpr ParamRole LoraBOf(ParamRole matrix) {
  return static_cast<ParamRole>(static_cast<int>(ParamRole::kQLoraB) +
                                LinearIndex(matrix));
}

// Low-rank adapters (Hu et al., LoRA, arXiv 2106.09685) of some of a decoder
// layer's matrices: y = W x + (alpha / rank) B A dropout(x).  Everything else
// is frozen.  They are held and computed in fp32 whatever the model's dtype, as
// PEFT does.
struct AdapterConfig {
  int64_t rank = 0;  // 0: no adapters, the whole model trains
  double alpha = 0;
  double dropout = 0;
  uint32_t targets = 0;  // bit i: kLinearRoles[i]

  bool present() const { return rank > 0; }
  bool Targets(ParamRole matrix) const {
    return (targets >> LinearIndex(matrix) & 1) != 0;
  }
  double scale() const { return alpha / static_cast<double>(rank); }
  bool operator==(const AdapterConfig&) const = default;
};

// INVALID_ARGUMENT naming what no adapter can have.  One that is not present()
// is right.
absl::Status CheckAdapter(const AdapterConfig& adapter);

// How a checkpoint stores a parameter of all experts of a layer: a tensor an
// expert and matrix, named prefix + number + suffix.  The parameter is these
// one after the other, of expert 0 in the order of `suffixes` first.
struct ExpertTensors {
  std::string prefix;                 // "model.layers.0.mlp.experts."
  std::vector<std::string> suffixes;  // ".gate_proj.weight"; empty: one tensor

  bool operator==(const ExpertTensors&) const = default;
};

struct ParameterSpec {
  // As transformers has it in memory, and the checkpoint where it stores one
  // tensor: "model.layers.0.self_attn.q_proj.weight".
  std::string name;
  ExpertTensors experts;
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

// One tensor of a checkpoint, and where in its unit it lies.
struct StoredTensor {
  std::string name;
  std::vector<int64_t> shape;
  int64_t element_count = 0;
  int64_t unit_offset_elements = 0;
};

// The tensors that a checkpoint stores the unit as: its parameters in their
// order, those of experts one after the other.
std::vector<StoredTensor> StoredTensors(const UnitSpec& unit);
int64_t StoredTensorCount(const UnitSpec& unit);

// All units in the order above.
std::vector<UnitSpec> ModelUnits(const ModelConfig& config);

// One of them.  REQUIRES: 0 <= unit <= config.layer_count + 1.
UnitSpec ModelUnit(const ModelConfig& config, int64_t unit);

// The units whose weights `layer` reads on a device: {1 + layer}; the head
// reads {L + 1} and, when tied, {0, L + 1}.
std::vector<int> UnitsOfLayer(const ModelConfig& config, int64_t layer);

// The adapters of decoder layer `layer`, named as PEFT's files name them.
// REQUIRES: adapter.present().
UnitSpec AdapterUnit(const ModelConfig& config, const AdapterConfig& adapter,
                     int64_t layer);

// ModelUnits and, where there are adapters, their units behind them.
std::vector<UnitSpec> TrainingUnits(const ModelConfig& config,
                                    const AdapterConfig& adapter);

// UnitsOfLayer and, for a decoder layer with adapters, their unit last.
std::vector<int> TrainingUnitsOfLayer(const ModelConfig& config,
                                      const AdapterConfig& adapter,
                                      int64_t layer);

// True where the job updates the unit of TrainingUnits.
bool IsTrainable(const ModelConfig& config, const AdapterConfig& adapter,
                 int64_t unit);

// The type of the unit's compute weights: `model`, or fp32 for adapters.
DType UnitDType(const ModelConfig& config, DType model, int64_t unit);

// Sum of element counts without padding.
int64_t ParameterCount(const ModelConfig& config);
// Element counts of the parameters that train, without padding.
int64_t TrainableParameterCount(const ModelConfig& config,
                                const AdapterConfig& adapter);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_PARAMETERS_H_
