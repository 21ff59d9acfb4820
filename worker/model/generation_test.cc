#include "worker/model/generation.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/model/key_value_layout.h"
#include "worker/model/logits.h"
#include "worker/model/stage_run.h"
#include "worker/model/test_model.h"

namespace roundhouse::worker {
namespace {

using Tokens = std::vector<int32_t>;
using Logits = std::vector<float>;

struct Case {
  const char* name;
  ModelConfig config;
  DType dtype = DType::kF32;
  AdapterConfig adapter = {};
};

constexpr AdapterConfig kAdapter = {
    .rank = 3, .alpha = 6, .dropout = 0.5, .targets = kAllLinearTargets};

std::vector<Case> Cases() {
  return {
      {"qwen3_tied", TinyConfig(3, true)},
      {"qwen3_untied", TinyConfig(3, false)},
      {"llama", TinyFamilyConfig(Architecture::kLlama, 3)},
      {"qwen2", TinyFamilyConfig(Architecture::kQwen2, 3)},
      {"mistral", TinyFamilyConfig(Architecture::kMistral, 3)},
      {"qwen3_adapter", TinyConfig(3, true), DType::kF32, kAdapter},
      {"qwen3_bf16", TinyConfig(3, false), DType::kBF16},
      {"llama_fp16", TinyFamilyConfig(Architecture::kLlama, 3), DType::kF16},
      {"mistral_bf16_adapter", TinyFamilyConfig(Architecture::kMistral, 3),
       DType::kBF16, kAdapter}};
}

std::vector<Case> Fp32Cases() {
  std::vector<Case> cases = Cases();
  std::erase_if(cases,
                [](const Case& one) { return one.dtype != DType::kF32; });
  return cases;
}

// `count` tokens that follow from `seed`.
Tokens MakeTokens(const ModelConfig& config, int64_t count, uint64_t seed) {
  return MakeBatch(config, 1, count, seed).tokens;
}

// The logits of the last token, by the forward pass of training over the whole
// sequence.
Logits FullLogits(const TestModel& model, const Tokens& tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  auto run = *StageRun::Create({.config = model.config,
                                .adapter = model.adapter,
                                .dtype = model.dtype,
                                .rows = 1,
                                .row_tokens = count});
  const auto input = model.Embed(tokens);
  EXPECT_EQ(run->SetInput(input.data()), absl::OkStatus());
  for (int64_t layer = 0; layer < model.config.layer_count; ++layer) {
    EXPECT_EQ(run->ForwardLayer(layer, model.Weights(layer)), absl::OkStatus());
  }
  AlignedVector<std::byte> output(input.size());
  EXPECT_EQ(run->CopyOutput(output.data()), absl::OkStatus());
  Logits logits(static_cast<size_t>(model.config.vocab_size));
  EXPECT_EQ(
      ComputeLogits(
          model.config, model.dtype,
          output.data() + output.size() / tokens.size() * (tokens.size() - 1),
          1, model.Weights(model.config.layer_count), logits.data()),
      absl::OkStatus());
  return logits;
}

// Sequences that grow by one run.
class Sequences {
 public:
  static constexpr int64_t kCapacity = 60;

  Sequences(const TestModel& model, size_t count)
      : model_(model),
        run_(*GenerationRun::Create({.config = model.config,
                                     .adapter = model.adapter,
                                     .dtype = model.dtype})),
        tokens_(count) {
    const KeyValueLayout layout(model.config, model.dtype, kCapacity);
    for (size_t i = 0; i < count; ++i) {
      // What is not written yet must not be read.
      caches_.emplace_back(layout.total_bytes(), std::byte{0xff});
    }
  }

  // One step that adds tokens to some sequences; returns the logits of each.
  std::vector<Logits> Add(const std::vector<std::pair<size_t, Tokens>>& added) {
    std::vector<SequenceStep> steps;
    Tokens all;
    for (const auto& [number, tokens] : added) {
      steps.push_back(
          {.cache = caches_[number].data(),
           .capacity_tokens = kCapacity,
           .cached_tokens = static_cast<int64_t>(tokens_[number].size()),
           .new_tokens = static_cast<int64_t>(tokens.size())});
      for (Tokens* to : {&all, &tokens_[number]}) {
        to->insert(to->end(), tokens.begin(), tokens.end());
      }
    }
    const auto input = model_.Embed(all);
    EXPECT_EQ(run_->SetInput(input.data(), steps), absl::OkStatus());
    const int64_t layers = model_.config.layer_count;
    for (int64_t layer = 0; layer < layers; ++layer) {
      EXPECT_EQ(run_->ForwardLayer(layer, model_.Weights(layer)),
                absl::OkStatus());
    }
    std::vector<Logits> logits;
    for (size_t i = 0; i < added.size(); ++i) {
      logits.emplace_back(static_cast<size_t>(model_.config.vocab_size));
      EXPECT_EQ(run_->Logits(model_.Weights(layers), i, 1, logits[i].data()),
                absl::OkStatus());
    }
    return logits;
  }

  const Tokens& tokens(size_t number) const { return tokens_[number]; }

 private:
  const TestModel& model_;
  std::unique_ptr<GenerationRun> run_;
  std::vector<Tokens> tokens_;
  std::vector<AlignedVector<std::byte>> caches_;
};

class GenerationTest : public testing::TestWithParam<Case> {
 protected:
  GenerationTest()
      : model_(GetParam().config, GetParam().dtype, 21, GetParam().adapter) {
    SetComputeThreads(1);
  }

  // Largest difference by largest logit.
  void ExpectClose(const Logits& logits, const Tokens& tokens) const {
    const Logits expected = FullLogits(model_, tokens);
    double worst = 0, largest = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference = std::abs(logits[i] - expected[i]);
      ASSERT_TRUE(std::isfinite(difference));
      worst = std::max(worst, difference);
      largest = std::max<double>(largest, std::abs(expected[i]));
    }
    const double limit = model_.dtype == DType::kF32 ? 1e-5 : 4e-2;
    EXPECT_LE(worst / largest, limit) << "after " << tokens.size();
  }

  const TestModel model_;
};

// Sequences of different lengths, over Mistral's and Qwen2's window of 5 and
// Llama's 32 first positions.
TEST_P(GenerationTest, EveryStepEqualsTheFullForwardPass) {
  const std::vector<int64_t> prompts = {3, 9, 17};
  Sequences sequences(model_, prompts.size());
  std::vector<std::pair<size_t, Tokens>> step;
  for (size_t i = 0; i < prompts.size(); ++i) {
    step.emplace_back(i, MakeTokens(model_.config, prompts[i], i));
  }
  for (uint64_t round = 0; round < 25; ++round) {
    const auto logits = sequences.Add(step);
    for (size_t i = 0; i < prompts.size(); ++i) {
      ExpectClose(logits[i], sequences.tokens(i));
      step[i].second = MakeTokens(model_.config, 1, 100 + 3 * round + i);
    }
  }
}

TEST_P(GenerationTest, SeveralTokensBehindCachedOnes) {
  Sequences sequences(model_, 1);
  uint64_t seed = 1;
  for (int64_t count : {2, 3, 1, 7, 12, 1, 2}) {
    const auto logits =
        sequences.Add({{0, MakeTokens(model_.config, count, ++seed)}});
    ExpectClose(logits[0], sequences.tokens(0));
  }
}

TEST_P(GenerationTest, AStepMayMixPromptsAndSingleTokens) {
  Sequences sequences(model_, 4);
  const auto tokens = [&](int64_t count, uint64_t seed) {
    return MakeTokens(model_.config, count, seed);
  };
  sequences.Add({{0, tokens(6, 1)}, {2, tokens(11, 2)}});
  const auto logits = sequences.Add({{3, tokens(4, 3)},
                                     {0, tokens(1, 4)},
                                     {1, tokens(8, 5)},
                                     {2, tokens(2, 6)}});
  const size_t order[] = {3, 0, 1, 2};
  for (size_t i = 0; i < 4; ++i) {
    ExpectClose(logits[i], sequences.tokens(order[i]));
  }
}

size_t Largest(const Logits& logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) -
                             logits.begin());
}

// In fp32: bf16 has ties that rounding decides.
class GreedyGenerationTest : public GenerationTest {};

TEST_P(GreedyGenerationTest, TokensDoNotDependOnTheOthers) {
  constexpr size_t kCount = 7;
  std::vector<Tokens> prompts;
  std::vector<std::pair<size_t, Tokens>> step;
  for (size_t i = 0; i < kCount; ++i) {
    prompts.push_back(
        MakeTokens(model_.config, 2 + static_cast<int64_t>(i) * 3, 40 + i));
    step.emplace_back(i, prompts[i]);
  }
  Sequences together(model_, kCount);
  for (int round = 0; round < 12; ++round) {
    const auto logits = together.Add(step);
    for (size_t i = 0; i < kCount; ++i) {
      step[i].second = {static_cast<int32_t>(Largest(logits[i]))};
    }
  }
  for (size_t i = 0; i < kCount; ++i) {
    Sequences alone(model_, 1);
    Tokens next = prompts[i];
    for (int round = 0; round < 12; ++round) {
      next = {static_cast<int32_t>(Largest(alone.Add({{0, next}})[0]))};
    }
    EXPECT_EQ(alone.tokens(0), together.tokens(i)) << "sequence " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GenerationTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Families, GreedyGenerationTest,
                         testing::ValuesIn(Fp32Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(GenerationRunTest, RefusalsNameTheSequence) {
  const TestModel model(TinyConfig(2, true), DType::kF32, 3);
  auto run = *GenerationRun::Create({.config = model.config});
  const auto input = model.Embed(Tokens(8, 1));
  AlignedVector<std::byte> cache(
      KeyValueLayout(model.config, DType::kF32, 80).total_bytes());
  const auto says = [&](SequenceStep second, const char* text) {
    const absl::Status status =
        run->SetInput(input.data(), {{cache.data(), 4, 0, 3}, second});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos)
        << status.message();
  };
  says({cache.data(), 4, 0, 0}, "sequence 1 of the step: 0 new tokens");
  says({cache.data(), 4, 3, 2},
       "sequence 1 of the step: 5 tokens, its cache "
       "holds 4");
  says({cache.data(), 80, 63, 2}, "65 tokens, the model takes 64");
  says({cache.data() + 4, 4, 0, 1}, "sequence 1 of the step: its cache must");
  EXPECT_FALSE(run->SetInput(input.data(), {}).ok());
}

TEST(GenerationRunTest, LayersComeInOrder) {
  const TestModel model(TinyConfig(2, true), DType::kF32, 3);
  auto run = *GenerationRun::Create({.config = model.config});
  EXPECT_FALSE(run->ForwardLayer(0, model.Weights(0)).ok());
  const auto input = model.Embed(Tokens(3, 1));
  AlignedVector<std::byte> cache(
      KeyValueLayout(model.config, DType::kF32, 4).total_bytes());
  ASSERT_TRUE(run->SetInput(input.data(), {{cache.data(), 4, 0, 3}}).ok());
  EXPECT_FALSE(run->ForwardLayer(1, model.Weights(1)).ok());
  ASSERT_TRUE(run->ForwardLayer(0, model.Weights(0)).ok());
  Logits logits(61);
  EXPECT_FALSE(run->Logits(model.Weights(2), 0, 1, logits.data()).ok());
  EXPECT_FALSE(run->ForwardLayer(1, model.Weights(2)).ok());  // the head's
  ASSERT_TRUE(run->ForwardLayer(1, model.Weights(1)).ok());
  EXPECT_FALSE(run->ForwardLayer(2, model.Weights(1)).ok());
  EXPECT_FALSE(run->Logits(model.Weights(2), 0, 2, logits.data()).ok());
  EXPECT_TRUE(run->Logits(model.Weights(2), 0, 1, logits.data()).ok());
}

}  // namespace
}  // namespace roundhouse::worker
