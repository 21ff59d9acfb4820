#include "worker/model/device_parity.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/convert.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/model/on_stream.h"
#include "worker/model/prepare_library.h"
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

// Memory of a device that lives as long as a run, and one stream.
class Bench {
 public:
  explicit Bench(std::unique_ptr<Device> device)
      : device_(std::move(device)), stream_(*device_->NewStream()) {
    EXPECT_EQ(PrepareLibrary(stream_->native()), absl::OkStatus());
  }

  Stream& stream() { return *stream_; }

  std::byte* Make(uint64_t bytes) {
    buffers_.push_back(*device_->Allocate(bytes, "test"));
    return buffers_.back()->data();
  }
  std::byte* Upload(const void* from, uint64_t bytes) {
    std::byte* const to = Make(bytes);
    Check(
        stream_->CopyToDevice(to, static_cast<const std::byte*>(from), bytes));
    Wait();
    return to;
  }
  std::vector<float> Floats(const std::byte* from, DType dtype, size_t count) {
    std::vector<std::byte> raw(count * DTypeBytes(dtype));
    Check(stream_->CopyToHost(raw.data(), from, raw.size()));
    Wait();
    std::vector<float> values(count);
    ToF32(dtype, raw.data(), values.data(), count);
    return values;
  }
  void Check(const absl::Status& status) {
    EXPECT_EQ(status, absl::OkStatus());
  }
  void Wait() { Check((*stream_->Record())->Wait()); }

  // A model's weights with their device's addresses.
  LayerWeights Weights(const TestModel& model, int64_t layer) {
    LayerWeights weights = model.Weights(layer);
    for (const void*& weight : weights.weight) {
      if (weight != nullptr) weight = Moved(model, weight);
    }
    return weights;
  }

 private:
  const void* Moved(const TestModel& model, const void* weight) {
    const auto* const at = static_cast<const std::byte*>(weight);
    for (const auto& unit : model.compute) {
      if (at < unit.data() || at >= unit.data() + unit.size()) continue;
      std::byte*& copy = units_[unit.data()];
      if (copy == nullptr) copy = Upload(unit.data(), unit.size());
      return copy + (at - unit.data());
    }
    ADD_FAILURE() << "a weight of no unit";
    return nullptr;
  }

  const std::unique_ptr<Device> device_;
  const std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::map<const std::byte*, std::byte*> units_;
};

// Gradients are the device's until its work is done: copied on its stream.
class DeviceSink : public GradientSink {
 public:
  explicit DeviceSink(Bench& bench) : bench_(bench) {}

  void OnGradient(int64_t layer, ParamRole role, const float* fp32,
                  int64_t element_count) override {
    const auto count = static_cast<size_t>(element_count);
    std::byte* const kept = bench_.Make(count * sizeof(float));
    bench_.Check(bench_.stream().CopyOnDevice(
        kept, reinterpret_cast<const std::byte*>(fp32), count * sizeof(float)));
    kept_["layer " + std::to_string(layer) + " role " +
          std::to_string(static_cast<int>(role))] = {kept, count};
  }

  void Read(Outcome* outcome) {
    for (const auto& [name, kept] : kept_) {
      outcome->values[name] =
          bench_.Floats(kept.first, DType::kF32, kept.second);
    }
  }

 private:
  Bench& bench_;
  std::map<std::string, std::pair<std::byte*, size_t>> kept_;
};

// All layers and the head, forward and backward, as a fused slot.
Outcome RunAll(std::unique_ptr<Device> device, const TestModel& model,
               const TestBatch& batch, Keep keep, double loss_scale = 0.125) {
  Bench bench(std::move(device));
  const int64_t layers = model.config.layer_count;
  const AlignedVector<std::byte> embedded = model.Embed(batch.tokens);
  std::byte* const input = bench.Upload(embedded.data(), embedded.size());
  std::byte* const output = bench.Make(embedded.size());
  std::byte* const gradient = bench.Make(embedded.size());
  auto run = *StageRun::Create({.config = model.config,
                                .adapter = model.adapter,
                                .dtype = model.dtype,
                                .rows = batch.rows,
                                .row_tokens = batch.row_tokens,
                                .keep = keep,
                                .head_token_chunk = 5,
                                .train = true,
                                .seed = 77,
                                .step = 5,
                                .micro_batch = 2,
                                .stream = bench.stream().native()});
  DeviceSink sink(bench);
  bench.Check(run->SetInput(input));
  if (!batch.positions.empty()) {
    bench.Check(run->SetPositions(batch.positions.data()));
  }
  for (int64_t layer = 0; layer < layers; ++layer) {
    bench.Check(run->ForwardLayer(layer, bench.Weights(model, layer)));
  }
  bench.Check(run->CopyOutput(output));
  Outcome outcome;
  const auto head = run->Head(bench.Weights(model, layers), batch.labels.data(),
                              HeadMode::kLossAndGradient, loss_scale, &sink);
  bench.Check(head.status());
  if (head.ok()) outcome.head = *head;
  for (int64_t layer = layers - 1; layer >= 0; --layer) {
    bench.Check(run->BackwardLayer(layer, &sink));
  }
  bench.Check(run->CopyInputGradient(gradient));
  const size_t count = embedded.size() / DTypeBytes(model.dtype);
  outcome.values["output"] = bench.Floats(output, model.dtype, count);
  outcome.values["input gradient"] = bench.Floats(gradient, model.dtype, count);
  sink.Read(&outcome);
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
       {Architecture::kLlama, Architecture::kQwen2, Architecture::kMistral}) {
    SCOPED_TRACE(static_cast<int>(architecture));
    const ModelConfig config = TinyFamilyConfig(architecture, 2);
    Compare(GetParam(), TestModel(config, DType::kF32, 5),
            MakeBatch(config, 2, 13, 6), Keep::kStage);
  }
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
