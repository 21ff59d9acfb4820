#include "base/model/config.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr char kConfig[] = R"({
  "architectures": ["Qwen3ForCausalLM"],
  "model_type": "qwen3",
  "hidden_size": 48,
  "num_hidden_layers": 3,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "head_dim": 16,
  "intermediate_size": 100,
  "vocab_size": 211,
  "max_position_embeddings": 512,
  "rope_theta": 5000000,
  "rope_scaling": null,
  "rms_norm_eps": 1e-05,
  "initializer_range": 0.01,
  "tie_word_embeddings": true,
  "attention_bias": false,
  "use_sliding_window": false,
  "sliding_window": null,
  "torch_dtype": "bfloat16",
  "bos_token_id": 7
})";

absl::StatusOr<ModelConfig> Parse(const std::string& json) {
  return ParseModelConfig(json, "dir/config.json");
}

// kConfig with one line's value replaced, or with `line` taken out.
std::string With(const std::string& from, const std::string& to) {
  const std::string json = absl::StrReplaceAll(kConfig, {{from, to}});
  EXPECT_NE(json, kConfig) << from;
  return json;
}

std::string Without(const std::string& line) {
  return With(absl::StrCat("  ", line, ",\n"), "");
}

// kConfig with fields added.
std::string Plus(const std::string& fields) {
  return With("\"bos_token_id\": 7",
              absl::StrCat("\"bos_token_id\": 7, ", fields));
}

void ExpectError(const std::string& json, absl::StatusCode code,
                 const std::string& field, const std::string& text) {
  const absl::Status status = Parse(json).status();
  EXPECT_EQ(status.code(), code) << status << json;
  EXPECT_TRUE(absl::StrContains(status.message(), "dir/config.json: "))
      << status;
  EXPECT_TRUE(absl::StrContains(status.message(), field)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
}

void ExpectInvalid(const std::string& json, const std::string& field,
                   const std::string& text) {
  ExpectError(json, absl::StatusCode::kInvalidArgument, field, text);
}

void ExpectUnsupported(const std::string& json, const std::string& field,
                       const std::string& text) {
  ExpectError(json, absl::StatusCode::kUnimplemented, field, text);
}

TEST(ConfigTest, ReadsEveryField) {
  const auto config = Parse(kConfig);
  ASSERT_TRUE(config.ok()) << config.status();
  const ModelConfig expected = {.architecture = Architecture::kQwen3,
                                .hidden_size = 48,
                                .layer_count = 3,
                                .head_count = 4,
                                .kv_head_count = 2,
                                .head_dim = 16,
                                .intermediate_size = 100,
                                .vocab_size = 211,
                                .max_position_tokens = 512,
                                .rope_theta = 5000000.0,
                                .rms_norm_eps = 1e-5,
                                .initializer_range = 0.01,
                                .tie_word_embeddings = true,
                                .dtype = DType::kBF16};
  EXPECT_TRUE(*config == expected);
}

TEST(ConfigTest, DefaultsAreThoseOfTransformers) {
  const auto config = Parse(R"({
    "model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 64, "intermediate_size": 8, "vocab_size": 10})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->head_dim, 128);
  EXPECT_EQ(config->kv_head_count, 32);
  EXPECT_EQ(config->max_position_tokens, 32768);
  EXPECT_EQ(config->rope_theta, 10000.0);
  EXPECT_EQ(config->rms_norm_eps, 1e-6);
  EXPECT_EQ(config->initializer_range, 0.02);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_EQ(config->dtype, DType::kF32);
}

TEST(ConfigTest, NullKeyValueHeadsAreAsManyAsHeads) {
  const auto config = Parse(
      With("\"num_key_value_heads\": 2", "\"num_key_value_heads\": null"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->kv_head_count, 4);
}

TEST(ConfigTest, BothSpellingsOfRopeAndDType) {
  const std::string newer = absl::StrReplaceAll(
      kConfig, {{"  \"rope_scaling\": null,\n", ""},
                {"\"rope_theta\": 5000000",
                 R"("rope_parameters": {"rope_type": "default",
                    "rope_theta": 5000000})"},
                {"torch_dtype", "dtype"}});
  const auto a = Parse(kConfig);
  const auto b = Parse(newer);
  ASSERT_TRUE(a.ok() && b.ok()) << b.status();
  EXPECT_TRUE(*a == *b);
  const auto inner = Parse(Plus(R"("rope_parameters": {"rope_theta": 9})"));
  ASSERT_TRUE(inner.ok()) << inner.status();
  EXPECT_EQ(inner->rope_theta, 9.0);
}

TEST(ConfigTest, RefusesOtherArchitecturesByName) {
  for (const char* name :
       {"GptOssForCausalLM", "Qwen3ForSequenceClassification"}) {
    const std::string json = With("Qwen3ForCausalLM", name);
    ExpectUnsupported(json, "architectures", name);
    ExpectUnsupported(
        json, "architectures",
        "supported architectures: LlamaForCausalLM, "
        "MistralForCausalLM, MixtralForCausalLM, "
        "Qwen2ForCausalLM, Qwen2MoeForCausalLM, Qwen3ForCausalLM, "
        "Qwen3MoeForCausalLM");
  }
  ExpectUnsupported(R"({"model_type": "gpt_oss"})", "model_type", "gpt_oss");
  ExpectInvalid("{}", "architectures", "missing");
  ExpectInvalid(With("\"qwen3\"", "\"llama\""), "model_type", "llama");
  ExpectInvalid(With("[\"Qwen3ForCausalLM\"]", "[]"), "architectures",
                "a list of one name");
}

TEST(ConfigTest, RefusesFeaturesByName) {
  ExpectUnsupported(Plus(R"("hidden_act": "gelu")"), "hidden_act", "gelu");
  ExpectUnsupported(Plus(R"("attention_dropout": 0.1)"), "attention_dropout",
                    "0.1");
  ExpectUnsupported(Plus(R"("quantization_config": {"bits": 4})"),
                    "quantization_config", "quantized");
  ExpectUnsupported(With("\"rope_scaling\": null",
                         R"("rope_scaling": {"type": "yarn", "factor": 4})"),
                    "rope_scaling.type", "yarn");
  ExpectUnsupported(
      Plus(R"("rope_parameters": {"partial_rotary_factor": 0.5})"),
      "rope_parameters.partial_rotary_factor", "0.5");
  ExpectUnsupported(With("bfloat16", "float64"), "torch_dtype", "float64");
}

TEST(ConfigTest, MissingSizesAreNamed) {
  ExpectInvalid(Without("\"hidden_size\": 48"), "hidden_size", "missing");
  ExpectInvalid(Without("\"num_hidden_layers\": 3"), "num_hidden_layers",
                "missing");
  ExpectInvalid(Without("\"num_attention_heads\": 4"), "num_attention_heads",
                "missing");
  ExpectInvalid(Without("\"intermediate_size\": 100"), "intermediate_size",
                "missing");
  ExpectInvalid(Without("\"vocab_size\": 211"), "vocab_size", "missing");
}

TEST(ConfigTest, SizesOutsideTheLimits) {
  ExpectInvalid(With("\"hidden_size\": 48", "\"hidden_size\": 0"),
                "hidden_size", "0 is outside [1, 65536]");
  ExpectInvalid(With("\"hidden_size\": 48", "\"hidden_size\": -48"),
                "hidden_size", "-48 is outside");
  ExpectInvalid(With("\"hidden_size\": 48", "\"hidden_size\": 65537"),
                "hidden_size", "65537");
  ExpectInvalid(
      With("\"vocab_size\": 211", "\"vocab_size\": 18446744073709551615"),
      "vocab_size", "18446744073709551615");
  ExpectInvalid(With("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 512"),
                "num_hidden_layers", "512 is outside [1, 511]");
  ExpectInvalid(With("\"head_dim\": 16", "\"head_dim\": 15"), "head_dim", "15");
  ExpectInvalid(
      With("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"),
      "num_key_value_heads", "does not divide num_attention_heads");
  ExpectInvalid(With("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 0"),
                "rms_norm_eps", "greater than 0");
  ExpectInvalid(With("5000000", "-1"), "rope_theta", "greater than 0");
}

TEST(ConfigTest, WrongTypes) {
  ExpectInvalid(With("\"hidden_size\": 48", "\"hidden_size\": \"48\""),
                "hidden_size", "expected a whole number");
  ExpectInvalid(With("\"hidden_size\": 48", "\"hidden_size\": 48.0"),
                "hidden_size", "expected a whole number, found '48.0'");
  ExpectInvalid(
      With("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1"),
      "tie_word_embeddings", "true or false");
  ExpectInvalid(With("1e-05", "\"small\""), "rms_norm_eps", "a number");
  ExpectInvalid(With("\"rope_scaling\": null", "\"rope_scaling\": 3"),
                "rope_scaling", "an object");
  ExpectInvalid("[]", "", "expected a JSON object");
}

TEST(ConfigTest, OneThingUnderTwoNames) {
  EXPECT_TRUE(Parse(Plus(R"("dtype": "bfloat16")")).ok());
  ExpectInvalid(Plus(R"("dtype": "float16")"), "torch_dtype", "contradicts");
  ExpectInvalid(
      absl::StrReplaceAll(Plus(R"("rope_parameters": {})"),
                          {{"\"rope_scaling\": null", "\"rope_scaling\": {}"}}),
      "rope_scaling", "newer name");
  ExpectInvalid(Plus("\"vocab_size\": 5"), "'vocab_size'", "appears twice");
}

TEST(ConfigTest, BrokenJsonNamesTheLine) {
  ExpectInvalid(With("\"hidden_size\": 48,", "\"hidden_size\": 48"), "line 5",
                "parse error");
  ExpectInvalid("", "", "parse error");
  ExpectInvalid(absl::StrCat("{\"a\": ", std::string(100, '['),
                             std::string(100, ']'), "}"),
                "", "nested deeper than 64");
  ExpectInvalid(std::string((1 << 20) + 1, ' '), "", "1048577 bytes");
}

TEST(ConfigTest, ExportReplacesDTypeAndKeepsTheRest) {
  const auto exported = ExportedConfigJson(kConfig, DType::kF32);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_TRUE(absl::StrContains(*exported, "\"torch_dtype\": \"float32\""));
  EXPECT_FALSE(absl::StrContains(*exported, "\"dtype\""));
  EXPECT_TRUE(absl::StrContains(*exported, "\"bos_token_id\": 7"));
  EXPECT_TRUE(absl::StrContains(*exported, "\"rope_scaling\": null"));
  EXPECT_LT(exported->find("hidden_size"), exported->find("vocab_size"));
  auto expected = Parse(kConfig);
  ASSERT_TRUE(expected.ok());
  expected->dtype = DType::kF32;
  const auto again = Parse(*exported);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == *expected);
}

TEST(ConfigTest, ExportWritesEverySpellingThatIsThere) {
  const auto both =
      ExportedConfigJson(Plus(R"("dtype": "bfloat16")"), DType::kF16);
  ASSERT_TRUE(both.ok());
  EXPECT_TRUE(absl::StrContains(*both, "\"torch_dtype\": \"float16\""));
  EXPECT_TRUE(absl::StrContains(*both, "\"dtype\": \"float16\""));
  const auto none = ExportedConfigJson("{}", DType::kBF16);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, "{\n  \"dtype\": \"bfloat16\"\n}\n");
  EXPECT_FALSE(ExportedConfigJson("[", DType::kBF16).ok());
}

}  // namespace
}  // namespace roundhouse
