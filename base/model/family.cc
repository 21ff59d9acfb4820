#include "base/model/family.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_join.h"
#include "base/log.h"

namespace roundhouse {
namespace {

constexpr ExpertFamily kQwenExperts = {.router = "mlp.gate",
                                       .experts = "mlp.experts",
                                       .count_field = "num_experts",
                                       .size_field = "moe_intermediate_size",
                                       .has_choices = true};
constexpr ExpertFamily kQwen2Experts = {
    .router = "mlp.gate",
    .experts = "mlp.experts",
    .count_field = "num_experts",
    .size_field = "moe_intermediate_size",
    .shared = "mlp.shared_expert",
    .shared_gate = "mlp.shared_expert_gate",
    .shared_size_field = "shared_expert_intermediate_size",
    .has_choices = true};
constexpr ExpertFamily kMixtralExperts = {.router = "block_sparse_moe.gate",
                                          .experts = "block_sparse_moe.experts",
                                          .gate = "w1",
                                          .up = "w3",
                                          .down = "w2",
                                          .count_field = "num_local_experts",
                                          .size_field = "intermediate_size",
                                          .wide_shares = true};

constexpr ModelFamily kFamilies[] = {
    {
        .architecture = Architecture::kLlama,
        .class_name = "LlamaForCausalLM",
        .model_type = "llama",
        .default_max_position_tokens = 2048,
        .has_attention_bias = true,
        .has_mlp_bias = true,
    },
    {
        .architecture = Architecture::kMistral,
        .class_name = "MistralForCausalLM",
        .model_type = "mistral",
        .default_kv_head_count = 8,
        .default_max_position_tokens = 131072,
        .sliding_layers = SlidingLayers::kAll,
    },
    {
        .architecture = Architecture::kMixtral,
        .class_name = "MixtralForCausalLM",
        .model_type = "mixtral",
        .default_kv_head_count = 8,
        .default_max_position_tokens = 131072,
        .default_rope_theta = 1000000.0,
        .default_rms_norm_eps = 1e-5,
        .sliding_layers = SlidingLayers::kAllIfGiven,
        .experts = &kMixtralExperts,
    },
    {
        .architecture = Architecture::kQwen2,
        .class_name = "Qwen2ForCausalLM",
        .model_type = "qwen2",
        .default_kv_head_count = 32,
        .query_key_value_bias = true,
        .sliding_layers = SlidingLayers::kUpper,
    },
    {
        .architecture = Architecture::kQwen2Moe,
        .class_name = "Qwen2MoeForCausalLM",
        .model_type = "qwen2_moe",
        .default_kv_head_count = 16,
        .query_key_value_bias = true,
        .query_key_value_bias_field = "qkv_bias",
        .sliding_layers = SlidingLayers::kEvenBelow,
        .experts = &kQwen2Experts,
    },
    {
        .architecture = Architecture::kQwen3,
        .class_name = "Qwen3ForCausalLM",
        .model_type = "qwen3",
        .default_kv_head_count = 32,
        .default_head_dim = 128,
        .query_key_norm = true,
        .has_attention_bias = true,
        .sliding_layers = SlidingLayers::kUpper,
    },
    {
        .architecture = Architecture::kQwen3Moe,
        .class_name = "Qwen3MoeForCausalLM",
        .model_type = "qwen3_moe",
        .default_kv_head_count = 4,
        .query_key_norm = true,
        .has_attention_bias = true,
        .sliding_layers = SlidingLayers::kAllIfUsed,
        .experts = &kQwenExperts,
    },
};

}  // namespace

const ModelFamily* FindFamilyByClass(absl::string_view class_name) {
  for (const ModelFamily& family : kFamilies) {
    if (family.class_name == class_name) return &family;
  }
  return nullptr;
}

const ModelFamily* FindFamilyByType(absl::string_view model_type) {
  for (const ModelFamily& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

const ModelFamily& FamilyOf(Architecture architecture) {
  for (const ModelFamily& family : kFamilies) {
    if (family.architecture == architecture) return family;
  }
  ROUNDHOUSE_CHECK(false) << "architecture "
                          << static_cast<uint32_t>(architecture);
  return kFamilies[0];
}

bool IsArchitecture(uint32_t number) {
  return std::any_of(std::begin(kFamilies), std::end(kFamilies),
                     [number](const ModelFamily& family) {
                       return static_cast<uint32_t>(family.architecture) ==
                              number;
                     });
}

std::string SupportedArchitectures() {
  return absl::StrJoin(kFamilies, ", ",
                       [](std::string* out, const ModelFamily& family) {
                         out->append(family.class_name);
                       });
}

}  // namespace roundhouse
