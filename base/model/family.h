// The architectures this build can train, as a table: one entry per family.
//
// A family states what config.json leaves out (the defaults of transformers'
// config class) and where its decoder layer differs from the common one (RMS
// norms, rotary embedding, grouped-query attention, SwiGLU or a mixture of
// such).  Pure data; a new family is a new entry.
#ifndef ROUNDHOUSE_BASE_MODEL_FAMILY_H_
#define ROUNDHOUSE_BASE_MODEL_FAMILY_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/model/config.h"

namespace roundhouse {

// Which layers of a family may have a sliding window.
enum class SlidingLayers {
  kNone,
  kAll,         // where config.json: sliding_window is a number
  kUpper,       // from config.json: max_window_layers on, if use_sliding_window
  kEvenBelow,   // 0, 2, .. below max_window_layers, if use_sliding_window
  kAllIfUsed,   // all, if use_sliding_window
  kAllIfGiven,  // all, where config.json: sliding_window is there
};

// What the mixtures of a family have in common.  Files have a tensor an expert
// and matrix, named below "model.layers.0.": "mlp.experts.3.gate_proj.weight".
struct ExpertFamily {
  const char* router;   // "mlp.gate"
  const char* experts;  // "mlp.experts"
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  const char* count_field;  // config.json: the number of experts
  const char* size_field;   // config.json: an expert's inner width
  // The MLP that every token goes through, the gate of its output, and
  // config.json's field of its inner width; null: there is none.
  const char* shared = nullptr;
  const char* shared_gate = nullptr;
  const char* shared_size_field = nullptr;
  // config.json may say which layers are dense, and whether the picked experts'
  // probabilities are divided by their sum.  Else none are, and they always
  // are.
  bool has_choices = false;
  // What an expert's output is multiplied with is not rounded to the dtype.
  bool wide_shares = false;
};

struct ModelFamily {
  Architecture architecture;
  const char* class_name;  // config.json: architectures
  const char* model_type;  // config.json: model_type

  // Where config.json is silent, as in transformers.  What stands here is what
  // most families have.
  int64_t default_kv_head_count = 0;  // 0: num_attention_heads
  int64_t default_head_dim = 0;       // 0: hidden_size / num_attention_heads
  int64_t default_max_position_tokens = 32768;
  double default_rope_theta = 10000.0;
  double default_rms_norm_eps = 1e-6;
  double default_initializer_range = 0.02;
  bool default_tie_word_embeddings = false;

  bool query_key_norm = false;        // an RMS norm per query and key head
  bool query_key_value_bias = false;  // also where config.json is silent
  // config.json may say that there are no such biases.
  const char* query_key_value_bias_field = nullptr;
  bool has_attention_bias =
      false;                  // of q, k, v and o where config.json says so
  bool has_mlp_bias = false;  // of all three where config.json says so
  SlidingLayers sliding_layers = SlidingLayers::kNone;
  const ExpertFamily* experts = nullptr;  // null: layers have none
};

// By class name or by model_type; null where no family has that name.
const ModelFamily* FindFamilyByClass(absl::string_view class_name);
const ModelFamily* FindFamilyByType(absl::string_view model_type);

// REQUIRES: IsArchitecture.
const ModelFamily& FamilyOf(Architecture architecture);
bool IsArchitecture(uint32_t number);

// "Qwen3ForCausalLM", comma-separated, for error messages.
std::string SupportedArchitectures();

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_FAMILY_H_
