#include "scheduler/estimate/training_costs.h"

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/limits.h"
#include "base/model/config.h"
#include "base/model/costs.h"
#include "base/model/parameters.h"
#include "gtest/gtest.h"
#include "scheduler/estimate/test_shapes.h"
#include "scheduler/search/step_search.h"

namespace roundhouse {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const DevicePreset& Rtx4090() { return *FindPreset("rtx4090"); }

std::vector<ModelCosts> Measured() {
  return *ParseModelCosts("bubble_inputs.csv",
                          ReadText("scheduler/testdata/bubble_inputs.csv"));
}

// As it was measured: all of it but 235B, whose adapters have rank 64.
TrainingSetup SetupOf(const ModelCosts& model) {
  return model.head_gradient_bytes > 0 ? TestSetup(model.name)
                                       : TestLora(model.name, 64);
}

void ExpectClose(int64_t predicted, int64_t measured, const std::string& what) {
  const double ratio =
      static_cast<double>(predicted) / static_cast<double>(measured);
  EXPECT_NEAR(ratio, 1, kFitTolerance) << what;
}

// The fit: each of the five published models, under the rules of its
// measurement.
TEST(TrainingCostsTest, MeasuredLayerTimesAreWithinTheTolerance) {
  const std::vector<ModelCosts> models = Measured();
  ASSERT_EQ(models.size(), 5u);
  for (const ModelCosts& measured : models) {
    const ModelCosts costs =
        CostsOf(SetupOf(measured), Rtx4090(), Accumulation::kFp16);
    const std::string& name = measured.name;
    ExpectClose(costs.forward_ns, measured.forward_ns, name + " forward");
    ExpectClose(costs.backward_ns, measured.backward_ns, name + " backward");
    ExpectClose(costs.head_forward_ns, measured.head_forward_ns,
                name + " head forward");
    ExpectClose(costs.head_backward_ns, measured.head_backward_ns,
                name + " head backward");
  }
}

// The artifact takes head_dim as width over heads, which makes three of its
// layers smaller than they are.
TEST(TrainingCostsTest, BytesAreThoseOfTheModels) {
  for (const ModelCosts& measured : Measured()) {
    const ModelCosts costs =
        CostsOf(SetupOf(measured), Rtx4090(), Accumulation::kFp32);
    const auto gigabytes = [](int64_t bytes) {
      return 1e-9 * static_cast<double>(bytes);
    };
    EXPECT_GE(gigabytes(costs.layer_bytes),
              gigabytes(measured.layer_bytes) * 0.999);
    EXPECT_LE(gigabytes(costs.layer_bytes),
              gigabytes(measured.layer_bytes) * 1.08);
    EXPECT_NEAR(gigabytes(costs.head_bytes), gigabytes(measured.head_bytes),
                0.01 * gigabytes(measured.head_bytes));
    EXPECT_NEAR(gigabytes(costs.head_gradient_bytes),
                gigabytes(measured.head_gradient_bytes), 0.01);
    EXPECT_EQ(costs.tokens, measured.tokens);
    EXPECT_EQ(costs.hidden, measured.hidden);
    EXPECT_EQ(costs.heads, measured.heads);
    EXPECT_EQ(costs.kv_heads, measured.kv_heads);
    EXPECT_EQ(costs.head_dim, measured.head_dim);
    EXPECT_EQ(costs.ActiveInner(0), measured.ActiveInner(0));
    EXPECT_NEAR(static_cast<double>(costs.BoundaryBytes()),
                2.0 * 8192 * static_cast<double>(costs.hidden), 21);
  }
  const auto layer_gb = [](const char* name) {
    return 2e-9 * static_cast<double>(TestShape(name).layer_parameters);
  };
  EXPECT_NEAR(layer_gb("qwen3-32b"), 0.9752, 1e-4);
  EXPECT_NEAR(layer_gb("qwen3-235b"), 4.9755, 1e-3);
  EXPECT_NEAR(layer_gb("gpt-oss-20b"), 1.6464, 1e-4);  // 1.6458 and biases
}

TEST(TrainingCostsTest, DenseFlopsAreThoseOfTheModelsOwnCosts) {
  const std::string path = "scheduler/testdata/models/llama3.1-8b/config.json";
  const auto config = ParseModelConfig(ReadText(path), path);
  ASSERT_TRUE(config.ok()) << config.status();
  const TrainingSetup setup = TestSetup("llama3.1-8b");
  const BatchShape batch{.sequences = 4, .tokens = 2048};
  EXPECT_DOUBLE_EQ(BlockMatrixFlops(setup, 0) + BlockAttentionFlops(setup, 0),
                   LayerForwardFlops(*config, 0, batch));
  EXPECT_DOUBLE_EQ(HeadFlops(setup), LayerForwardFlops(*config, 32, batch));
}

TEST(TrainingCostsTest, WindowsAndExpertsCountWhatTheyUse) {
  TrainingSetup setup = TestSetup("gpt-oss-20b");
  // Half of the layers see 128 of 2048 tokens.
  const double full = 2048.0 * 2049 / 2;
  const double window = 128.0 * 129 / 2 + (2048.0 - 128) * 128;
  EXPECT_DOUBLE_EQ(BlockAttentionFlops(setup, 0), 4.0 * 4 * window * 64 * 64);
  EXPECT_DOUBLE_EQ(BlockAttentionFlops(setup, 1), 4.0 * 4 * full * 64 * 64);
  const double four_experts = BlockMatrixFlops(setup, 0);
  setup.shape.experts_per_token = 8;
  EXPECT_DOUBLE_EQ(BlockMatrixFlops(setup, 0) - four_experts,
                   2.0 * 8192 * 4 * 3 * 2880 * 2880);
}

// A's rows and B's columns, per matrix.
TEST(TrainingCostsTest, AdaptersOfTheTargets) {
  TrainingSetup setup = TestLora("llama3.1-8b", 16);
  EXPECT_EQ(AdapterParameters(setup), 16 * (4096 + 4096) + 16 * (4096 + 1024));
  EXPECT_EQ(TrainedParameters(setup), 32 * AdapterParameters(setup));
  const auto config = ParseModelConfig(
      ReadText("scheduler/testdata/models/llama3.1-8b/config.json"), "c");
  ASSERT_TRUE(config.ok());
  setup.lora_targets = kAllLinearTargets;
  AdapterConfig adapter;
  adapter.rank = 16;
  adapter.targets = kAllLinearTargets;
  EXPECT_EQ(TrainedParameters(setup),
            TrainableParameterCount(*config, adapter));
  // In a mixture only attention has any.
  TrainingSetup mixture = TestLora("qwen3-235b", 1);
  const int64_t attention = AdapterParameters(mixture);
  mixture.lora_targets |= TargetModuleBit("down_proj");
  EXPECT_EQ(AdapterParameters(mixture), attention);
  mixture.method = TrainingMethod::kFull;
  EXPECT_EQ(AdapterParameters(mixture), 0);
}

TEST(TrainingCostsTest, FrozenLayersHaveNoWeightGradients) {
  const ModelCosts full =
      CostsOf(TestSetup("qwen3-32b"), Rtx4090(), Accumulation::kFp32);
  const ModelCosts lora =
      CostsOf(TestLora("qwen3-32b", 8), Rtx4090(), Accumulation::kFp32);
  EXPECT_EQ(lora.forward_ns, full.forward_ns);
  EXPECT_LT(lora.backward_ns, full.backward_ns * 6 / 10);
  EXPECT_EQ(lora.head_backward_ns, lora.head_forward_ns);
  EXPECT_EQ(lora.head_gradient_bytes, 0);
  EXPECT_EQ(lora.layer_gradient_bytes,
            2 * AdapterParameters(TestLora("qwen3-32b", 8)));
}

// Twice the rate is half the time; fp32 accumulation of a GeForce card is half
// of its other rate.
TEST(TrainingCostsTest, TimesFollowTheRate) {
  const TrainingSetup setup = TestSetup("qwen3-32b");
  const ModelCosts fp16 = CostsOf(setup, Rtx4090(), Accumulation::kFp16);
  const ModelCosts fp32 = CostsOf(setup, Rtx4090(), Accumulation::kFp32);
  const double rates = 330.3 / 165.2;
  EXPECT_NEAR(static_cast<double>(fp32.forward_ns),
              rates * static_cast<double>(fp16.forward_ns), 10);
  const ModelCosts h100 =
      CostsOf(setup, *FindPreset("h100"), Accumulation::kFp32);
  EXPECT_NEAR(static_cast<double>(fp32.forward_ns),
              989.5 / 165.2 * static_cast<double>(h100.forward_ns), 10);
}

TEST(TrainingCostsTest, LayerRecomputeTradesTimeForMemory) {
  TrainingSetup setup = TestSetup("qwen3-32b");
  const ModelCosts stage = CostsOf(setup, Rtx4090(), Accumulation::kFp32);
  const int64_t stage_reserve = DeviceReserveBytes(setup);
  setup.layer_recompute = true;
  const ModelCosts layer = CostsOf(setup, Rtx4090(), Accumulation::kFp32);
  EXPECT_EQ(layer.backward_ns, stage.backward_ns + stage.forward_ns);
  // One block holds the same; a second one only its input.
  EXPECT_EQ(LeastDeviceBytes(layer) + DeviceReserveBytes(setup),
            LeastDeviceBytes(stage) + stage_reserve);
}

Machine OneDevice(int64_t memory_bytes) {
  Machine machine;
  machine.devices = {{memory_bytes, 1}};
  return machine;
}

// To the byte what the search needs for its smallest plan.
TEST(TrainingCostsTest, TheLeastThatADeviceNeedsIsTheSearchsOwn) {
  for (const char* name : {"llama3.1-8b", "gpt-oss-20b", "qwen3-235b"}) {
    for (const TrainingSetup& setup : {TestSetup(name), TestLora(name, 8)}) {
      const ModelCosts costs = CostsOf(setup, Rtx4090(), Accumulation::kFp32);
      SearchOptions options;
      options.rank_work = options.work = 1;
      const int64_t least = LeastDeviceBytes(costs);
      EXPECT_TRUE(SearchStepPlan(costs, OneDevice(least), 1, options).ok());
      EXPECT_EQ(SearchStepPlan(costs, OneDevice(least - 1), 1, options)
                    .status()
                    .code(),
                absl::StatusCode::kResourceExhausted);
    }
  }
}

TEST(TrainingCostsTest, WhatIsTooLargeIsRefused) {
  TrainingSetup setup = TestSetup("qwen3-32b");
  EXPECT_EQ(CheckSetup(setup), absl::OkStatus());
  const auto expect = [&setup](const char* part) {
    const absl::Status status = CheckSetup(setup);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
  };
  setup.shape.layer_count = 512;
  expect("num_hidden_layers: 512 is more than the 511");
  setup = TestSetup("qwen3-32b");
  setup.sequence_tokens = kMaxMicroBatchTokens;
  expect("a micro-batch has 1 to");
  setup.sequence_tokens = 0;
  expect("a micro-batch has 1 to");
  setup.sequence_tokens = kMaxMicroBatchTokens / 4;
  expect("more than can be planned for");
  setup = TestSetup("qwen3-235b");
  setup.shape.layer_parameters = int64_t{1} << 42;
  expect("more than can be planned for");
}

}  // namespace
}  // namespace roundhouse
