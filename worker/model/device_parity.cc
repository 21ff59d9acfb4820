#include "worker/model/device_parity.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/device/cpu/cpu_device.h"
#include "worker/model/device_bench.h"
#include "worker/model/on_stream.h"
#include "worker/model/stage_run.h"
#include "worker/model/test_model.h"

namespace roundhouse::worker {
namespace {

constexpr double kF32Tolerance = 1e-5;
constexpr double kBf16Tolerance = 3e-2;  // of fp16 too: gradients unscaled
constexpr uint64_t kMemoryBytes = 256 << 20;

struct Outcome {
  HeadResult head;
  // By name: the stage's output, its input's gradient, each parameter's.
  std::map<std::string, std::vector<float>> values;
};

// All layers and the head, forward and backward, as a fused slot.
Outcome RunAll(std::unique_ptr<Device> device, const TestModel& model,
               const TestBatch& batch, Keep keep, double loss_scale = 0.125) {
  DeviceBench bench(std::move(device));
  for (const auto& unit : model.compute) {
    bench.AddWeights(unit.data(), unit.size());
  }
  const int64_t layers = model.config.layer_count;
  const AlignedVector<std::byte> embedded = model.Embed(batch.tokens);
  const auto run = bench.Forward(
      {.config = model.config,
       .adapter = model.adapter,
       .dtype = model.dtype,
       .rows = batch.rows,
       .row_tokens = batch.row_tokens,
       .keep = keep,
       .head_token_chunk = 5,
       .train = true,
       .seed = 77,
       .step = 5,
       .micro_batch = 2},
      {.states = embedded.data(),
       .positions = batch.positions.empty() ? nullptr : batch.positions.data(),
       .picks = batch.picks.empty() ? nullptr : batch.picks.data()},
      [&](int64_t layer) { return model.Weights(layer); });
  Outcome outcome;
  outcome.values["output"] = bench.Output(*run);
  GradientMap gradients;
  outcome.head = bench.Backward(*run, model.Weights(layers),
                                batch.labels.data(), loss_scale, &gradients);
  outcome.values["input gradient"] = bench.InputGradient(*run);
  for (auto& [key, values] : gradients.gradients) {
    outcome.values["layer " + std::to_string(key.first) + " role " +
                   std::to_string(static_cast<int>(key.second))] =
        std::move(values);
  }
  return outcome;
}

// By LibTorch's operators, whatever a device of host memory was given.
Outcome RunOnHost(const TestModel& model, const TestBatch& batch, Keep keep,
                  double loss_scale = 0.125) {
  SetHostFusedKernels(nullptr);
  return RunAll(NewCpuDevice(kMemoryBytes), model, batch, keep, loss_scale);
}

// || a - b || / || b ||.
double RelativeL2(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-30);
}

void Compare(const DeviceFactory& open, const TestModel& model,
             const TestBatch& batch, Keep keep) {
  SetComputeThreads(1);
  const double tolerance =
      model.dtype == DType::kF32 ? kF32Tolerance : kBf16Tolerance;
  const Outcome host = RunOnHost(model, batch, keep);
  const Outcome device = RunAll(*open(kMemoryBytes), model, batch, keep);
  EXPECT_EQ(device.head.target_tokens, host.head.target_tokens);
  EXPECT_NEAR(device.head.loss_sum, host.head.loss_sum,
              tolerance * std::abs(host.head.loss_sum));
  ASSERT_EQ(device.values.size(), host.values.size());
  for (const auto& [name, values] : host.values) {
    ASSERT_EQ(device.values.at(name).size(), values.size()) << name;
    EXPECT_LE(RelativeL2(device.values.at(name), values), tolerance) << name;
  }
  const Outcome again = RunAll(*open(kMemoryBytes), model, batch, keep);
  EXPECT_EQ(again.head.loss_sum, device.head.loss_sum);
  for (const auto& [name, values] : device.values) {
    EXPECT_EQ(std::memcmp(values.data(), again.values.at(name).data(),
                          values.size() * sizeof(float)),
              0)
        << name << " has other bits the second time";
  }
}

bool AllFinite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

// On every matrix.
AdapterConfig Adapter(double dropout) {
  return {.rank = 4, .alpha = 8, .dropout = dropout, .targets = 0x7F};
}

TestBatch Packed(TestBatch batch, int64_t tokens) {
  for (int64_t i = 0; i < batch.rows * batch.row_tokens; ++i) {
    batch.positions.push_back(
        static_cast<int32_t>(i % batch.row_tokens % tokens));
  }
  return batch;
}

TEST_P(DeviceParity, WholeModelsTiedAndUntied) {
  for (const bool tied : {false, true}) {
    const ModelConfig config = TinyConfig(2, tied);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(std::string(tied ? "tied " : "untied ") + DTypeName(dtype));
      Compare(GetParam(), TestModel(config, dtype, 1),
              MakeBatch(config, 3, 11, 2), Keep::kStage);
    }
  }
}

TEST_P(DeviceParity, RecomputedLayers) {
  const ModelConfig config = TinyConfig(3, false);
  Compare(GetParam(), TestModel(config, DType::kF32, 3),
          MakeBatch(config, 2, 9, 4), Keep::kLayer);
}

TEST_P(DeviceParity, EveryFamilyWithItsBiasesAndWindows) {
  for (const Architecture architecture :
       {Architecture::kLlama, Architecture::kQwen2, Architecture::kMistral,
        Architecture::kQwen2Moe, Architecture::kQwen3Moe}) {
    SCOPED_TRACE(static_cast<int>(architecture));
    const ModelConfig config = TinyFamilyConfig(architecture, 2);
    Compare(GetParam(), TestModel(config, DType::kF32, 5),
            MakeBatch(config, 2, 13, 6), Keep::kStage);
  }
}

// In bf16 and fp16 the host's picks are given to the device: rounding would
// pick others.
void CompareExperts(const DeviceFactory& open, Architecture architecture) {
  const ModelConfig config = TinyFamilyConfig(architecture, 3);
  const auto each = static_cast<size_t>(config.mixture.experts_per_token);
  TestBatch batch = MakeBatch(config, 2, 13, 6);
  for (size_t layer = 0; layer < config.mixture.layers.count(); ++layer) {
    for (size_t token = 0; token < batch.tokens.size(); ++token) {
      // Not the last expert, which gets no token.
      const auto first = static_cast<ExpertPick>((token + layer) % 3);
      for (size_t i = 0; i < each; ++i) {
        batch.picks.push_back(static_cast<ExpertPick>(first + i));
      }
    }
  }
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    for (const Keep keep : {Keep::kStage, Keep::kLayer}) {
      Compare(open, TestModel(config, dtype, 5), batch, keep);
    }
  }
}
TEST_P(DeviceParity, Experts) {
  CompareExperts(GetParam(), Architecture::kQwen3Moe);
}
TEST_P(DeviceParity, ExpertsBesideAnMlp) {
  CompareExperts(GetParam(), Architecture::kQwen2Moe);
}

// A GPU has a kernel of its own for them in bf16 and fp16.
TEST_P(DeviceParity, PackedAndWindowedRows) {
  const ModelConfig windowed = TinyFamilyConfig(Architecture::kMistral, 2);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    for (const ModelConfig& config : {TinyConfig(2, false), windowed}) {
      // Short sequences, and as long as the kernel takes them.
      Compare(GetParam(), TestModel(config, dtype, 7),
              Packed(MakeBatch(config, 2, 12, 8), 7), Keep::kStage);
      Compare(GetParam(), TestModel(config, dtype, 7),
              Packed(MakeBatch(config, 2, 150, 8), 100), Keep::kStage);
    }
    Compare(GetParam(), TestModel(windowed, dtype, 7),
            MakeBatch(windowed, 2, 12, 8), Keep::kLayer);
  }
}

// Rows longer than a kernel's blocks.
TEST_P(DeviceParity, LongRows) {
  const ModelConfig config = TinyConfig(1, false);
  Compare(GetParam(), TestModel(config, DType::kF32, 9),
          MakeBatch(config, 1, 300, 10), Keep::kStage);
}

// A mask of other numbers would be far outside the tolerance.
TEST_P(DeviceParity, AdaptersWithDropout) {
  const ModelConfig config = TinyConfig(2, false);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    Compare(GetParam(), TestModel(config, dtype, 11, Adapter(0.25)),
            MakeBatch(config, 2, 10, 12), Keep::kLayer);
  }
}

// At the scale that a job begins with gradients do not vanish: they are those
// of fp32, scaled.
TEST_P(DeviceParity, Fp16GradientsWithALossScaleAreThoseOfFp32) {
  SetComputeThreads(1);
  constexpr float kScale = 65536;
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied ? "tied" : "untied");
    const ModelConfig config = TinyConfig(2, tied);
    const TestBatch batch = MakeBatch(config, 3, 11, 2);
    const double mean = 1e-2;  // of a batch of a hundred tokens
    const Outcome exact =
        RunOnHost(TestModel(config, DType::kF32, 1), batch, Keep::kStage, mean);
    const Outcome scaled =
        RunAll(*GetParam()(kMemoryBytes), TestModel(config, DType::kF16, 1),
               batch, Keep::kStage, mean * kScale);
    EXPECT_TRUE(scaled.head.finite);
    ASSERT_EQ(scaled.values.size(), exact.values.size());
    for (auto [name, values] : scaled.values) {
      EXPECT_TRUE(AllFinite(values)) << name;
      if (name != "output") {
        for (float& value : values) value /= kScale;
      }
      EXPECT_LE(RelativeL2(values, exact.values.at(name)), kBf16Tolerance)
          << name;
    }
  }
}

// The loss scaler sees an overflow by a gradient that is not finite: none may
// become the largest number instead.
TEST_P(DeviceParity, Fp16GradientsThatOverflowAreNotFinite) {
  SetComputeThreads(1);
  const ModelConfig config = TinyConfig(2, false);
  const Outcome outcome =
      RunAll(*GetParam()(kMemoryBytes), TestModel(config, DType::kF16, 1),
             MakeBatch(config, 3, 11, 2), Keep::kStage, 0x1p30);
  EXPECT_TRUE(outcome.head.finite);  // the loss is not scaled
  EXPECT_TRUE(AllFinite(outcome.values.at("output")));
  for (const auto& [name, values] : outcome.values) {
    if (name == "output") continue;
    EXPECT_FALSE(AllFinite(values)) << name;
  }
}

}  // namespace
}  // namespace roundhouse::worker
