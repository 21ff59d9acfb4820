// What families read differently: defaults, biases, sliding windows, and the
// rotary scaling that all of them may have.
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/model/config.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// The fields that no family has a default for, and `more`.
std::string Json(const std::string& model_type, const std::string& more = "") {
  return absl::StrCat(R"({"model_type": ")", model_type, R"(",
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 32,
    "intermediate_size": 8, "vocab_size": 10)",
                      more.empty() ? "" : ", ", more, "}");
}

absl::StatusOr<ModelConfig> Parse(const std::string& model_type,
                                  const std::string& more = "") {
  return ParseModelConfig(Json(model_type, more), "dir/config.json");
}

ModelConfig Good(const std::string& model_type, const std::string& more = "") {
  const auto config = Parse(model_type, more);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig());
}

void ExpectError(absl::StatusCode code, const std::string& model_type,
                 const std::string& more, const std::string& field,
                 const std::string& text) {
  const absl::Status status = Parse(model_type, more).status();
  EXPECT_EQ(status.code(), code) << status << more;
  EXPECT_TRUE(absl::StrContains(status.message(),
                                absl::StrCat("dir/config.json: ", field, ": ")))
      << status;
  EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
}

void ExpectInvalid(const std::string& model_type, const std::string& more,
                   const std::string& field, const std::string& text) {
  ExpectError(absl::StatusCode::kInvalidArgument, model_type, more, field,
              text);
}

void ExpectUnsupported(const std::string& model_type, const std::string& more,
                       const std::string& field, const std::string& text) {
  ExpectError(absl::StatusCode::kUnimplemented, model_type, more, field, text);
}

struct Defaults {
  const char* model_type;
  Architecture architecture;
  int64_t kv_head_count;
  int64_t head_dim;
  int64_t max_position_tokens;
  int64_t sliding_window;
  bool query_key_value_bias;
};

// transformers 5.23: LlamaConfig(), MistralConfig(), Qwen2Config(),
// Qwen3Config().
TEST(ConfigFamiliesTest, DefaultsAreThoseOfTransformers) {
  const Defaults all[] = {
      {"llama", Architecture::kLlama, 32, 2, 2048, 0, false},
      {"mistral", Architecture::kMistral, 8, 2, 131072, 4096, false},
      {"qwen2", Architecture::kQwen2, 32, 2, 32768, 0, true},
      {"qwen3", Architecture::kQwen3, 32, 128, 32768, 0, false},
  };
  for (const Defaults& expected : all) {
    SCOPED_TRACE(expected.model_type);
    const ModelConfig config = Good(expected.model_type);
    EXPECT_EQ(config.architecture, expected.architecture);
    EXPECT_EQ(config.kv_head_count, expected.kv_head_count);
    EXPECT_EQ(config.head_dim, expected.head_dim);
    EXPECT_EQ(config.max_position_tokens, expected.max_position_tokens);
    EXPECT_EQ(config.sliding_window, expected.sliding_window);
    EXPECT_EQ(config.sliding_layers.count(),
              expected.sliding_window > 0 ? 3u : 0u);
    EXPECT_FALSE(config.mixture.present());
    EXPECT_EQ(config.query_key_value_bias, expected.query_key_value_bias);
    EXPECT_FALSE(config.output_bias);
    EXPECT_FALSE(config.mlp_bias);
    EXPECT_EQ(config.rope_theta, 10000.0);
    EXPECT_TRUE(config.rope_scaling == RopeScaling());
    EXPECT_EQ(config.rms_norm_eps, 1e-6);
    EXPECT_EQ(config.initializer_range, 0.02);
    EXPECT_FALSE(config.tie_word_embeddings);
  }
}

TEST(ConfigFamiliesTest, ClassNames) {
  for (const auto& [type, name] : {std::pair("llama", "LlamaForCausalLM"),
                                   std::pair("mistral", "MistralForCausalLM"),
                                   std::pair("qwen2", "Qwen2ForCausalLM")}) {
    const std::string classes =
        absl::StrCat(R"("architectures": [")", name, R"("])");
    EXPECT_TRUE(Good(type, classes) == Good(type)) << name;
    ExpectInvalid("qwen3", classes, "model_type", "does not belong to");
  }
}

TEST(ConfigFamiliesTest, HeadDim) {
  for (const char* type : {"llama", "mistral", "qwen2"}) {
    EXPECT_EQ(Good(type, R"("head_dim": null)").head_dim, 2) << type;
    EXPECT_EQ(Good(type, R"("head_dim": 6)").head_dim, 6) << type;
  }
}

TEST(ConfigFamiliesTest, Biases) {
  for (const char* type : {"llama", "qwen3"}) {
    const ModelConfig config = Good(type, R"("attention_bias": true)");
    EXPECT_TRUE(config.query_key_value_bias && config.output_bias) << type;
    EXPECT_FALSE(config.mlp_bias) << type;
  }
  EXPECT_TRUE(Good("llama", R"("mlp_bias": true)").mlp_bias);
  for (const char* type : {"mistral", "qwen2"}) {
    EXPECT_TRUE(Parse(type, R"("attention_bias": false)").ok());
    ExpectUnsupported(type, R"("attention_bias": true)", "attention_bias",
                      "true is not supported by ");
    ExpectUnsupported(type, R"("mlp_bias": true)", "mlp_bias",
                      "true is not supported by ");
  }
}

TEST(ConfigFamiliesTest, MistralWindow) {
  EXPECT_EQ(Good("mistral", R"("sliding_window": null)").sliding_window, 0);
  const ModelConfig config = Good("mistral", R"("sliding_window": 7)");
  EXPECT_EQ(config.sliding_window, 7);
  EXPECT_EQ(config.sliding_layers, LayersFrom(0, 3));
  ExpectInvalid("mistral", R"("sliding_window": 0)", "sliding_window",
                "0 is outside [1, 16777216]");
  const std::string all = R"("layer_types": ["sliding_attention",
                             "sliding_attention", "sliding_attention"])";
  EXPECT_TRUE(Good("mistral", all) == Good("mistral"));
  ExpectInvalid("mistral", all + R"(, "sliding_window": null)", "layer_types",
                "'sliding_attention' without a sliding window");
  ExpectUnsupported("mistral", R"("layer_types": ["full_attention",
                    "sliding_attention", "sliding_attention"])",
                    "layer_types", "not supported by MistralForCausalLM");
}

TEST(ConfigFamiliesTest, UpperLayersHaveAWindow) {
  for (const char* type : {"qwen2", "qwen3"}) {
    SCOPED_TRACE(type);
    const std::string used =
        R"("use_sliding_window": true, "sliding_window": 9)";
    // 28 layers of full attention, the default, are more than there are.
    EXPECT_TRUE(Good(type, used) == Good(type));
    ModelConfig config = Good(type, used + R"(, "max_window_layers": 2)");
    EXPECT_EQ(config.sliding_window, 9);
    EXPECT_EQ(config.sliding_layers, LayersFrom(2, 3));
    config = Good(type, used + R"(, "max_window_layers": 0)");
    EXPECT_EQ(config.sliding_window, 9);
    EXPECT_EQ(config.sliding_layers, LayersFrom(0, 3));
    EXPECT_TRUE(Good(type, R"("sliding_window": 9, "max_window_layers": 0,
                              "use_sliding_window": false)") == Good(type));
    EXPECT_TRUE(Good(type, R"("sliding_window": null, "max_window_layers": 0,
                              "use_sliding_window": true)") == Good(type));
    config =
        Good(type, R"("use_sliding_window": true, "max_window_layers": 1)");
    EXPECT_EQ(config.sliding_window, 4096);
    ExpectInvalid(type, used + R"(, "max_window_layers": -1)",
                  "max_window_layers", "-1 is outside [0, 511]");
  }
}

TEST(ConfigFamiliesTest, LayerTypesGoBeforeMaxWindowLayers) {
  const std::string types = R"("layer_types": ["full_attention",
                               "sliding_attention", "sliding_attention"])";
  const ModelConfig config =
      Good("qwen3", types + R"(, "use_sliding_window": true,
                            "sliding_window": 9, "max_window_layers": 2)");
  EXPECT_EQ(config.sliding_window, 9);
  EXPECT_EQ(config.sliding_layers, LayersFrom(1, 3));
  ExpectInvalid("qwen3", types, "layer_types",
                "'sliding_attention' without a sliding window");
  ExpectInvalid("llama", types, "layer_types",
                "'sliding_attention' without a sliding window");
}

TEST(ConfigFamiliesTest, LayersWithAWindowMayComeInAnyOrder) {
  const std::string types = R"("layer_types": ["sliding_attention",
                               "full_attention", "sliding_attention"],
                               "use_sliding_window": true,
                               "sliding_window": 9)";
  for (const char* type : {"qwen2", "qwen3"}) {
    const ModelConfig config = Good(type, types);
    EXPECT_EQ(config.WindowOf(0), 9) << type;
    EXPECT_EQ(config.WindowOf(1), 0) << type;
    EXPECT_EQ(config.WindowOf(2), 9) << type;
  }
}

TEST(ConfigFamiliesTest, LayerTypesOneALayer) {
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    EXPECT_TRUE(Parse(type, R"("layer_types": ["full_attention",
                               "full_attention", "full_attention"])")
                    .ok());
    ExpectInvalid(type, R"("layer_types": ["full_attention"])", "layer_types",
                  "3 names");
    ExpectUnsupported(type, R"("layer_types": ["chunked_attention",
                      "full_attention", "full_attention"])",
                      "layer_types", "'chunked_attention' at layer 0");
  }
}

TEST(ConfigFamiliesTest, LlamaHasNoWindow) {
  EXPECT_TRUE(Good("llama", R"("sliding_window": null)") == Good("llama"));
  EXPECT_TRUE(Good("llama", R"("sliding_window": 9,
                               "use_sliding_window": false)") == Good("llama"));
  ExpectUnsupported("llama", R"("sliding_window": 9)", "sliding_window",
                    "not supported by LlamaForCausalLM");
}

constexpr char kLlama3[] = R"("factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192)";

TEST(ConfigFamiliesTest, Llama3RopeInBothSpellings) {
  const ModelConfig older =
      Good("llama", absl::StrCat(R"("rope_theta": 500000.0, "rope_scaling": {
           "rope_type": "llama3", )",
                                 kLlama3, "}"));
  const ModelConfig newer =
      Good("llama", absl::StrCat(R"("rope_parameters": {"rope_theta": 5e5,
           "rope_type": "llama3", )",
                                 kLlama3, "}"));
  EXPECT_EQ(older.rope_theta, 500000.0);
  const RopeScaling expected = {.type = RopeType::kLlama3,
                                .factor = 8,
                                .low_freq_factor = 1,
                                .high_freq_factor = 4,
                                .original_max_position_tokens = 8192};
  EXPECT_TRUE(older.rope_scaling == expected);
  EXPECT_TRUE(newer == older);
  // Beside the object it goes first, as in transformers.
  const ModelConfig beside =
      Good("llama", absl::StrCat(R"("original_max_position_embeddings": 64,
                               "rope_scaling": {"type": "llama3", )",
                                 kLlama3, "}"));
  EXPECT_EQ(beside.rope_scaling.original_max_position_tokens, 64);
}

TEST(ConfigFamiliesTest, LinearRope) {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3"}) {
    const ModelConfig config =
        Good(type, R"("rope_scaling": {"type": "linear", "factor": 4})");
    EXPECT_TRUE(config.rope_scaling ==
                (RopeScaling{.type = RopeType::kLinear, .factor = 4}));
  }
  EXPECT_TRUE(Good("llama", R"("rope_scaling": {"type": "default",
                               "factor": 4})") == Good("llama"));
}

TEST(ConfigFamiliesTest, RopeIsChecked) {
  const auto llama3 = [](const std::string& fields) {
    return absl::StrCat(R"("rope_scaling": {"type": "llama3", )", fields, "}");
  };
  ExpectInvalid("llama", R"("rope_scaling": {"type": "linear"})",
                "rope_scaling.factor", "missing");
  ExpectInvalid("llama", R"("rope_scaling": {"type": "linear", "factor": 0})",
                "rope_scaling.factor", "greater than 0");
  ExpectInvalid("llama", llama3(R"("factor": 8, "low_freq_factor": 4,
                "high_freq_factor": 4,
                "original_max_position_embeddings": 8192)"),
                "rope_scaling.high_freq_factor",
                "4 is not above low_freq_factor, which is 4");
  ExpectInvalid("llama", llama3(R"("factor": 8, "low_freq_factor": 1,
                "high_freq_factor": 4)"),
                "rope_scaling.original_max_position_embeddings", "missing");
  ExpectInvalid("llama", llama3(R"("factor": 8, "high_freq_factor": 4,
                "original_max_position_embeddings": 8192)"),
                "rope_scaling.low_freq_factor", "missing");
  ExpectInvalid("llama", R"("rope_parameters": {"type": "linear",
                "rope_type": "llama3"})",
                "rope_parameters.type", "contradicts rope_type");
  for (const char* name : {"yarn", "dynamic", "longrope", "su"}) {
    ExpectUnsupported(
        "llama",
        absl::StrCat(R"("rope_parameters": {"rope_type": ")", name, R"("})"),
        "rope_parameters.rope_type", name);
  }
  ExpectUnsupported("qwen3", R"("rope_parameters": {"full_attention":
                    {"rope_type": "default"}})",
                    "rope_parameters", "'full_attention'");
}

// As they lie on disk, without the fields that nothing reads.
TEST(ConfigFamiliesTest, PublishedFiles) {
  const auto llama = ParseModelConfig(
      R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
          "attention_dropout": 0.0, "head_dim": 64, "hidden_act": "silu",
          "hidden_size": 2048, "initializer_range": 0.02,
          "intermediate_size": 8192, "max_position_embeddings": 131072,
          "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
          "num_hidden_layers": 16, "num_key_value_heads": 8,
          "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {
          "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
          "original_max_position_embeddings": 8192, "rope_type": "llama3"},
          "rope_theta": 500000.0, "tie_word_embeddings": true,
          "torch_dtype": "bfloat16", "vocab_size": 128256})",
      "config.json");
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(llama->rope_scaling.factor, 32);
  const auto qwen = ParseModelConfig(
      R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
          "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
          "intermediate_size": 4864, "max_position_embeddings": 32768,
          "max_window_layers": 21, "model_type": "qwen2",
          "num_attention_heads": 14, "num_hidden_layers": 24,
          "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
          "rope_theta": 1000000.0, "sliding_window": 32768,
          "tie_word_embeddings": true, "torch_dtype": "bfloat16",
          "use_mrope": false, "use_sliding_window": false,
          "vocab_size": 151936})",
      "config.json");
  ASSERT_TRUE(qwen.ok()) << qwen.status();
  EXPECT_EQ(qwen->head_dim, 64);
  EXPECT_EQ(qwen->sliding_window, 0);
  const auto mistral = ParseModelConfig(
      R"({"architectures": ["MistralForCausalLM"], "hidden_act": "silu",
          "hidden_size": 4096, "initializer_range": 0.02,
          "intermediate_size": 14336, "max_position_embeddings": 32768,
          "model_type": "mistral", "num_attention_heads": 32,
          "num_hidden_layers": 32, "num_key_value_heads": 8,
          "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
          "tie_word_embeddings": false, "torch_dtype": "bfloat16",
          "vocab_size": 32000})",
      "config.json");
  ASSERT_TRUE(mistral.ok()) << mistral.status();
  EXPECT_EQ(mistral->head_dim, 128);
  EXPECT_EQ(mistral->sliding_window, 4096);
}

}  // namespace
}  // namespace roundhouse
