#include "base/model/parameters.h"

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

TEST(ParametersDeathTest, NoSuchLayer) {
  EXPECT_DEATH(UnitsOfLayer(TinyConfig(true), 4), "check failed");
  EXPECT_DEATH(ModelUnit(TinyConfig(true), 5), "check failed");
}

}  // namespace
}  // namespace roundhouse
