#include <cstdint>
#include <random>
#include <string>

#include "base/model/config.h"
#include "base/model/mutation.h"
#include "gtest/gtest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace roundhouse {
namespace {

constexpr const char* kSeedConfigs[] = {R"({
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128,
  "vocab_size": 256, "max_position_embeddings": 512,
  "rope_parameters": {"rope_type": "default", "rope_theta": 1000000},
  "layer_types": ["full_attention", "full_attention"],
  "sliding_window": null, "attention_bias": false, "hidden_act": "silu",
  "rms_norm_eps": 1e-06, "tie_word_embeddings": true, "dtype": "bfloat16"
})",
                                        R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256,
  "attention_bias": true, "mlp_bias": true, "rope_theta": 500000.0,
  "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192}
})",
                                        R"({
  "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
  "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256,
  "use_sliding_window": true, "sliding_window": 32, "max_window_layers": 1,
  "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]
})"};

TEST(ConfigFuzzTest, SeededMutations) {
  std::mt19937_64 random(20260);
  int accepted = 0;
  constexpr int kInputs = 20000;
  for (int i = 0; i < kInputs; ++i) {
    const std::string json =
        Mutate(kSeedConfigs[i % std::size(kSeedConfigs)], &random);
    accepted += ParseModelConfig(json, "config.json").ok() ? 1 : 0;
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(json.data()),
                           json.size());
  }
  // Both sides of the parser are reached.
  EXPECT_GT(accepted, kInputs / 100);
  EXPECT_LT(accepted, kInputs * 9 / 10);
}

}  // namespace
}  // namespace roundhouse
