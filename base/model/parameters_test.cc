#include "base/model/parameters.h"

#include <cmath>
#include <set>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

ModelConfig TinyConfig(bool tied) {
  return {.hidden_size = 48,
          .layer_count = 3,
          .head_count = 4,
          .kv_head_count = 2,
          .head_dim = 16,
          .intermediate_size = 100,
          .vocab_size = 211,
          .max_position_tokens = 512,
          .tie_word_embeddings = tied};
}

TEST(ParametersTest, UnitsInOrder) {
  const auto units = ModelUnits(TinyConfig(false));
  ASSERT_EQ(units.size(), 5u);
  ASSERT_EQ(units[0].parameters.size(), 1u);
  EXPECT_EQ(units[0].parameters[0].name, "model.embed_tokens.weight");
  EXPECT_EQ(units[0].parameters[0].shape, (std::vector<int64_t>{211, 48}));
  ASSERT_EQ(units[4].parameters.size(), 2u);
  EXPECT_EQ(units[4].parameters[0].name, "model.norm.weight");
  EXPECT_EQ(units[4].parameters[1].name, "lm_head.weight");
  EXPECT_EQ(units[4].parameters[1].shape, (std::vector<int64_t>{211, 48}));
}

TEST(ParametersTest, DecoderLayer) {
  struct Expected {
    const char* name;
    ParamRole role;
    std::vector<int64_t> shape;
    int64_t offset;
  };
  const Expected expected[] = {
      {"input_layernorm", ParamRole::kInputNorm, {48}, 0},
      {"self_attn.q_proj", ParamRole::kQ, {64, 48}, 64},
      {"self_attn.k_proj", ParamRole::kK, {32, 48}, 3136},
      {"self_attn.v_proj", ParamRole::kV, {32, 48}, 4672},
      {"self_attn.o_proj", ParamRole::kO, {48, 64}, 6208},
      {"self_attn.q_norm", ParamRole::kQNorm, {16}, 9280},
      {"self_attn.k_norm", ParamRole::kKNorm, {16}, 9344},
      {"post_attention_layernorm", ParamRole::kPostNorm, {48}, 9408},
      {"mlp.gate_proj", ParamRole::kGate, {100, 48}, 9472},
      {"mlp.up_proj", ParamRole::kUp, {100, 48}, 14272},
      {"mlp.down_proj", ParamRole::kDown, {48, 100}, 19072},
  };
  const UnitSpec unit = ModelUnit(TinyConfig(true), 2);
  ASSERT_EQ(unit.parameters.size(), std::size(expected));
  for (size_t i = 0; i < std::size(expected); ++i) {
    const ParameterSpec& spec = unit.parameters[i];
    EXPECT_EQ(spec.name,
              std::string("model.layers.1.") + expected[i].name + ".weight");
    EXPECT_EQ(spec.role, expected[i].role) << spec.name;
    EXPECT_EQ(spec.shape, expected[i].shape) << spec.name;
    EXPECT_EQ(spec.unit_offset_elements, expected[i].offset) << spec.name;
    EXPECT_EQ(spec.weight_decay, spec.shape.size() == 2) << spec.name;
  }
  EXPECT_EQ(unit.element_count, 23872);  // 19072 + 4800
}

TEST(ParametersTest, UnitsArePaddedAndNamesUnique) {
  for (bool tied : {false, true}) {
    std::set<std::string> names;
    int64_t count = 0;
    for (const UnitSpec& unit : ModelUnits(TinyConfig(tied))) {
      EXPECT_EQ(unit.element_count % kTensorAlignElements, 0);
      int64_t end = 0;
      for (const ParameterSpec& spec : unit.parameters) {
        EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
        EXPECT_EQ(spec.unit_offset_elements % kTensorAlignElements, 0);
        EXPECT_GE(spec.unit_offset_elements, end);
        end = spec.unit_offset_elements + spec.element_count;
        count += spec.element_count;
      }
      EXPECT_GE(unit.element_count, end);
    }
    EXPECT_EQ(count, ParameterCount(TinyConfig(tied)));
  }
}

TEST(ParametersTest, UnitsOfLayer) {
  EXPECT_EQ(UnitsOfLayer(TinyConfig(false), 0), (std::vector<int>{1}));
  EXPECT_EQ(UnitsOfLayer(TinyConfig(false), 3), (std::vector<int>{4}));
  EXPECT_EQ(UnitsOfLayer(TinyConfig(true), 2), (std::vector<int>{3}));
  EXPECT_EQ(UnitsOfLayer(TinyConfig(true), 3), (std::vector<int>{0, 4}));
}

TEST(ParametersTest, FamiliesWithoutHeadNormsHaveNone) {
  ModelConfig config = TinyConfig(true);
  for (Architecture other :
       {Architecture::kLlama, Architecture::kMistral, Architecture::kQwen2}) {
    config.architecture = other;
    const UnitSpec unit = ModelUnit(config, 1);
    EXPECT_EQ(unit.parameters.size(), 9u);
    for (const ParameterSpec& spec : unit.parameters) {
      EXPECT_NE(spec.role, ParamRole::kQNorm);
      EXPECT_NE(spec.role, ParamRole::kKNorm);
    }
  }
}

TEST(ParametersTest, ABiasFollowsItsMatrix) {
  ModelConfig config = TinyConfig(true);
  config.architecture = Architecture::kLlama;
  const auto biases_of = [&config] {
    std::vector<std::string> names;
    const UnitSpec unit = ModelUnit(config, 1);
    for (size_t i = 1; i < unit.parameters.size(); ++i) {
      const ParameterSpec& spec = unit.parameters[i];
      if (!spec.name.ends_with(".bias")) continue;
      const ParameterSpec& matrix = unit.parameters[i - 1];
      EXPECT_EQ(spec.role, BiasOf(matrix.role)) << spec.name;
      EXPECT_EQ(spec.shape, (std::vector<int64_t>{matrix.shape[0]}));
      EXPECT_FALSE(spec.weight_decay) << spec.name;
      names.push_back(spec.name.substr(std::string("model.layers.0.").size()));
    }
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(biases_of(), Names());
  config.query_key_value_bias = true;
  EXPECT_EQ(biases_of(),
            (Names{"self_attn.q_proj.bias", "self_attn.k_proj.bias",
                   "self_attn.v_proj.bias"}));
  config.query_key_value_bias = false;
  config.output_bias = config.mlp_bias = true;
  EXPECT_EQ(biases_of(), (Names{"self_attn.o_proj.bias", "mlp.gate_proj.bias",
                                "mlp.up_proj.bias", "mlp.down_proj.bias"}));
}

// The published count of Qwen3-0.6B and, untied, Qwen3-8B.
TEST(ParametersTest, PublishedModels) {
  ModelConfig small = {.hidden_size = 1024,
                       .layer_count = 28,
                       .head_count = 16,
                       .kv_head_count = 8,
                       .head_dim = 128,
                       .intermediate_size = 3072,
                       .vocab_size = 151936,
                       .max_position_tokens = 40960,
                       .tie_word_embeddings = true};
  EXPECT_EQ(ParameterCount(small), 596'049'920);
  ModelConfig large = {.hidden_size = 4096,
                       .layer_count = 36,
                       .head_count = 32,
                       .kv_head_count = 8,
                       .head_dim = 128,
                       .intermediate_size = 12288,
                       .vocab_size = 151936,
                       .max_position_tokens = 40960};
  EXPECT_EQ(ParameterCount(large), 8'190'735'360);
}

// Llama-3.2-1B, Qwen2.5-0.5B, Mistral-7B-v0.1.
TEST(ParametersTest, PublishedModelsOfOtherFamilies) {
  const ModelConfig llama = {.architecture = Architecture::kLlama,
                             .hidden_size = 2048,
                             .layer_count = 16,
                             .head_count = 32,
                             .kv_head_count = 8,
                             .head_dim = 64,
                             .intermediate_size = 8192,
                             .vocab_size = 128256,
                             .tie_word_embeddings = true};
  EXPECT_EQ(ParameterCount(llama), 1'235'814'400);
  const ModelConfig qwen = {.architecture = Architecture::kQwen2,
                            .hidden_size = 896,
                            .layer_count = 24,
                            .head_count = 14,
                            .kv_head_count = 2,
                            .head_dim = 64,
                            .intermediate_size = 4864,
                            .vocab_size = 151936,
                            .query_key_value_bias = true,
                            .tie_word_embeddings = true};
  EXPECT_EQ(ParameterCount(qwen), 494'032'768);
  const ModelConfig mistral = {.architecture = Architecture::kMistral,
                               .hidden_size = 4096,
                               .layer_count = 32,
                               .head_count = 32,
                               .kv_head_count = 8,
                               .head_dim = 128,
                               .intermediate_size = 14336,
                               .vocab_size = 32000};
  EXPECT_EQ(ParameterCount(mistral), 7'241'732'096);
}

TEST(ParametersDeathTest, NoSuchLayer) {
  EXPECT_DEATH(UnitsOfLayer(TinyConfig(true), 4), "check failed");
  EXPECT_DEATH(ModelUnit(TinyConfig(true), 5), "check failed");
}

TEST(TargetModulesTest, NamesAndBitsAreEachOthersInverse) {
  const std::vector<std::string> all = TargetModuleNames(kAllLinearTargets);
  EXPECT_EQ(all,
            (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj",
                                      "gate_proj", "up_proj", "down_proj"}));
  for (int i = 0; i < kLinearRoleCount; ++i) {
    EXPECT_EQ(TargetModuleBit(all[i]), 1u << i);
    EXPECT_EQ(TargetModuleBit(LinearName(kLinearRoles[i])), 1u << i);
    EXPECT_EQ(TargetModuleNames(1u << i), std::vector<std::string>{all[i]});
  }
  for (const char* other : {"", "proj", "lm_head", "mlp.q_proj", "q_proj "}) {
    EXPECT_EQ(TargetModuleBit(other), 0u) << other;
  }
}

TEST(CheckAdapterTest, WhatNoAdapterCanHave) {
  const AdapterConfig good = {.rank = 2, .alpha = 4, .targets = 1};
  EXPECT_TRUE(CheckAdapter(good).ok());
  EXPECT_TRUE(CheckAdapter(AdapterConfig()).ok()) << "there is none";
  const auto refuses = [&](auto change) {
    AdapterConfig bad = good;
    change(bad);
    EXPECT_TRUE(absl::IsInvalidArgument(CheckAdapter(bad)));
  };
  refuses([](AdapterConfig& a) { a.rank = -1; });
  refuses([](AdapterConfig& a) { a.alpha = INFINITY; });
  refuses([](AdapterConfig& a) { a.dropout = 1; });
  refuses([](AdapterConfig& a) { a.dropout = NAN; });
  refuses([](AdapterConfig& a) { a.targets = 0; });
  refuses([](AdapterConfig& a) { a.targets = 128; });
}

TEST(AdapterUnitsTest, FollowTheModelsAndAloneTrain) {
  const ModelConfig config = TinyConfig(true);
  const AdapterConfig adapter = {
      .rank = 5, .alpha = 10, .dropout = 0, .targets = 0b1000010};
  EXPECT_EQ(adapter.scale(), 2.0);
  const auto units = TrainingUnits(config, adapter);
  ASSERT_EQ(units.size(), 8u);
  for (int64_t unit = 0; unit < 8; ++unit) {
    EXPECT_EQ(IsTrainable(config, adapter, unit), unit > 4);
    EXPECT_TRUE(IsTrainable(config, {}, unit));
    EXPECT_EQ(UnitDType(config, DType::kBF16, unit),
              unit > 4 ? DType::kF32 : DType::kBF16);
  }
  EXPECT_EQ(TrainingUnitsOfLayer(config, adapter, 1), (std::vector<int>{2, 6}));
  EXPECT_EQ(TrainingUnitsOfLayer(config, adapter, 3), (std::vector<int>{0, 4}));
  EXPECT_EQ(TrainingUnitsOfLayer(config, {}, 1), std::vector<int>{2});
  const auto& parameters = units[6].parameters;
  ASSERT_EQ(parameters.size(), 4u);
  EXPECT_EQ(parameters[0].name,
            "base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight");
  EXPECT_EQ(parameters[0].role, ParamRole::kKLoraA);
  EXPECT_EQ(parameters[0].shape, (std::vector<int64_t>{5, 48}));
  EXPECT_EQ(parameters[1].role, ParamRole::kKLoraB);
  EXPECT_EQ(parameters[1].shape, (std::vector<int64_t>{32, 5}));
  EXPECT_EQ(parameters[3].name,
            "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight");
  EXPECT_TRUE(parameters[3].weight_decay);
  EXPECT_EQ(TrainableParameterCount(config, adapter),
            3 * (5 * 48 + 32 * 5 + 5 * 100 + 48 * 5));
  EXPECT_EQ(TrainableParameterCount(config, {}), ParameterCount(config));
}

}  // namespace
}  // namespace roundhouse
