#include "tests/bench/quickstart_forecast.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/bench/model_inputs.h"

namespace roundhouse::bench {
namespace {

constexpr char kConfig[] = R"({"architectures": ["Qwen3ForCausalLM"],
  "model_type": "qwen3", "hidden_size": 128, "intermediate_size": 384,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "head_dim": 32, "vocab_size": 512, "max_position_embeddings": 256,
  "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
  "attention_bias": false, "initializer_range": 0.02,
  "tie_word_embeddings": true, "dtype": "float32"})";

StepSamples Samples() {
  StepSamples samples;
  samples.step_seconds = 0.05;
  samples.devices.resize(4);
  samples.host_busy = 0.1;
  samples.layers = {{1e6, 2e6}, {3e6, 4e6}, {5e6, 6e6}};
  return samples;
}

TEST(QuickstartForecastTest, BlocksHaveTheirMeanTimesTheHeadItsOwn) {
  const auto costs = QuickstartCosts(kConfig, Samples());
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(costs->layers, 2);
  EXPECT_EQ(costs->forward_ns, 2'000'000);
  EXPECT_EQ(costs->backward_ns, 3'000'000);
  EXPECT_EQ(costs->head_forward_ns, 5'000'000);
  EXPECT_EQ(costs->head_backward_ns, 6'000'000);
  EXPECT_TRUE(costs->tied_head);
  StepSamples without = Samples();
  without.layers[1].backward_ns = 0;
  EXPECT_FALSE(QuickstartCosts(kConfig, without).ok());
}

// Four micro-batches: all layers on each device once, then 10 % host work, of
// which the updates hold back the next step.
TEST(QuickstartForecastTest, ComputeAndHostWorkTakeWhatTheyTook) {
  StepSamples samples = Samples();
  // 21 ms are the layers'.
  for (DeviceShares& device : samples.devices) device.compute = 0.5;
  const auto costs = QuickstartCosts(kConfig, samples);
  ASSERT_TRUE(costs.ok()) << costs.status();
  const auto plan = ParsePlanJson(
      "{\"forward\": [], \"backward\": [[0, 2]], \"forward_width\": [], "
      "\"backward_width\": [[1, 1, 1, 1]]}",
      2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto forecast = ForecastQuickstart(*costs, *plan, samples);
  ASSERT_TRUE(forecast.ok()) << forecast.status();
  const double compute_ms = 25;
  EXPECT_GT(forecast->step_ms, compute_ms);
  EXPECT_LT(forecast->step_ms, compute_ms + 6);
  EXPECT_NEAR(forecast->bubble_percent,
              100 * (1 - compute_ms / forecast->step_ms), 0.01);
}

TEST(QuickstartForecastTest, TheSearchedPlanIsOneForAJobFile) {
  const auto costs = QuickstartCosts(kConfig, Samples());
  ASSERT_TRUE(costs.ok()) << costs.status();
  const auto searched = SearchedQuickstartPlan(*costs, Samples());
  ASSERT_TRUE(searched.ok()) << searched.status();
  EXPECT_TRUE(ParsePlanJson(*searched, 2).ok()) << *searched;
}

}  // namespace
}  // namespace roundhouse::bench
