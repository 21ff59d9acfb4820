#include "base/model/model_shape.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/model/costs.h"
#include "base/model/parameters.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr char kMixture[] = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
  "hidden_size": 4096, "num_hidden_layers": 94, "num_attention_heads": 64,
  "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 12288,
  "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8,
  "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936,
  "max_position_embeddings": 40960, "tie_word_embeddings": false,
  "use_sliding_window": false, "sliding_window": null})";

constexpr char kOss[] = R"({
  "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss",
  "hidden_size": 2880, "num_hidden_layers": 4, "num_attention_heads": 64,
  "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880,
  "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
  "layer_types": ["sliding_attention", "full_attention",
                  "sliding_attention", "full_attention"],
  "vocab_size": 201088, "max_position_embeddings": 131072,
  "tie_word_embeddings": false})";

constexpr char kDense[] = R"({
  "architectures": ["MistralForCausalLM"], "model_type": "mistral",
  "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 200,
  "max_position_embeddings": 512, "sliding_window": 32,
  "tie_word_embeddings": true})";

absl::StatusOr<ModelShape> Parse(const std::string& json) {
  return ParseModelShape(json, "dir/config.json");
}

void ExpectError(const std::string& json, absl::StatusCode code,
                 const std::string& part) {
  const auto shape = Parse(json);
  ASSERT_FALSE(shape.ok()) << json;
  EXPECT_EQ(shape.status().code(), code) << shape.status();
  EXPECT_TRUE(absl::StrContains(shape.status().message(), part))
      << shape.status();
}

std::string With(const char* json, const std::string& from,
                 const std::string& to) {
  return absl::StrReplaceAll(json, {{from, to}});
}

// The layer's 4.9755 GB in bf16 and 235 billion parameters are published.
TEST(ModelShapeTest, AMixtureOfExperts) {
  const auto shape = Parse(kMixture);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_TRUE(shape->trainable);
  EXPECT_TRUE(shape->mixture());
  EXPECT_EQ(shape->inner_size, 1536);
  EXPECT_EQ(shape->router_parameters, 128 * 4096);
  EXPECT_NEAR(2e-9 * static_cast<double>(shape->layer_parameters), 4.9755,
              1e-3);
  EXPECT_NEAR(1e-9 * static_cast<double>(shape->parameter_count()), 235.1, 0.1);
  // A token meets 22 of the 235 billion: its active matrices, embedding and
  // head.
  const int64_t active =
      94 * shape->ActiveMatrixElements(0) + 2 * shape->embedding_parameters();
  EXPECT_NEAR(1e-9 * static_cast<double>(active), 22.2, 0.1);
  EXPECT_TRUE(shape->sliding_layers.none());
}

TEST(ModelShapeTest, GptOssHasBiasesSinksAndWindows) {
  const auto shape = Parse(kOss);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_FALSE(shape->trainable);
  EXPECT_EQ(shape->WindowOf(0), 128);
  EXPECT_EQ(shape->WindowOf(1), 0);
  EXPECT_EQ(shape->sliding_layers.count(), 2u);
  const int64_t attention = 2 * 2880 * 4096 + 2 * 2880 * 512;
  EXPECT_EQ(shape->attention_matrix_elements(), attention);
  const int64_t biases = 4096 + 2 * 512 + 2880 + 32 + 32 * (2 * 2880 + 2880);
  EXPECT_EQ(shape->layer_parameters, attention + 32 * 3 * 2880 * 2880 +
                                         32 * 2880 + 2 * 2880 + 64 + biases);
}

TEST(ModelShapeTest, WithoutLayerTypesEveryOtherLayerSlides) {
  const auto shape = Parse(With(kOss, "\"layer_types\"", "\"other\""));
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->sliding_layers.count(), 2u);
}

TEST(ModelShapeTest, OfAConfigThatCanBeTrained) {
  const auto config = ParseModelConfig(kDense, "c");
  ASSERT_TRUE(config.ok()) << config.status();
  const auto shape = Parse(kDense);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_TRUE(*shape == ShapeOfConfig(*config));
  EXPECT_TRUE(shape->trainable);
  EXPECT_FALSE(shape->mixture());
  EXPECT_EQ(shape->sliding_layers.count(), 3u);
  EXPECT_EQ(shape->parameter_count(), ParameterCount(*config));
  EXPECT_EQ(shape->layer_parameters, LayerParameterCount(*config, 0));
  EXPECT_EQ(shape->head_parameters(), LayerParameterCount(*config, 3));
}

TEST(ModelShapeTest, LayersOfAMixtureMayBeDense) {
  const std::string json =
      With(kMixture, "\"mlp_only_layers\": []", "\"mlp_only_layers\": [3]");
  const auto config = ParseModelConfig(json, "c");
  ASSERT_TRUE(config.ok()) << config.status();
  const auto shape = Parse(json);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->parameter_count(), ParameterCount(*config));
  for (const int64_t layer : {2, 3}) {
    EXPECT_EQ(shape->HasExperts(layer), layer == 2);
    EXPECT_EQ(shape->ActiveInner(layer), layer == 2 ? 8 * 1536 : 12288);
    EXPECT_EQ(shape->LayerParameters(layer),
              LayerParameterCount(*config, layer));
  }
  EXPECT_EQ(shape->most_layer_parameters(), shape->LayerParameters(2));
}

TEST(ModelShapeTest, WhatIsWrongIsNamed) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const auto unknown = absl::StatusCode::kUnimplemented;
  ExpectError(With(kMixture, "\"num_experts_per_tok\": 8",
                   "\"num_experts_per_tok\": 129"),
              invalid, "num_experts_per_tok: 129 of 128 experts");
  ExpectError(With(kMixture, "\"num_experts\": 128,", ""), invalid,
              "num_experts: missing");
  ExpectError(With(kMixture, "\"qwen3_moe\"", "\"qwen3\""), invalid,
              "does not belong to Qwen3MoeForCausalLM");
  ExpectError(With(kMixture, "\"num_key_value_heads\": 4",
                   "\"num_key_value_heads\": 5"),
              invalid, "num_key_value_heads");
  ExpectError(With(kOss, "[\"sliding_attention\",", "[\"linear\","), unknown,
              "layer_types");
  ExpectError(
      With(kOss, "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5"),
      invalid, "layer_types: expected a list of 5");
  ExpectError(R"({"architectures": ["PhimoeForCausalLM"]})", unknown,
              "PhimoeForCausalLM");
  ExpectError("[]", invalid, "expected a JSON object");
  ExpectError("{", invalid, "dir/config.json");
}

// It is planned for, and refused where it would be trained.
TEST(ModelShapeTest, GptOssIsNoModelConfig) {
  EXPECT_EQ(ParseModelConfig(kOss, "c").status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace roundhouse
