#include "worker/model/stage_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "base/convert.h"
#include "gtest/gtest.h"
#include "worker/model/test_model.h"

namespace roundhouse::worker {
namespace {

using Bytes = AlignedVector<std::byte>;

// Everything one micro-batch leaves behind.
struct Outcome {
  HeadResult head;
  Bytes input_gradient;
  GradientMap sink;
};

// The options of a training step: with the model's dropout.
StageRunOptions OptionsOf(const TestModel& model, const TestBatch& batch,
                          Keep keep) {
  return {.config = model.config,
          .adapter = model.adapter,
          .dtype = model.dtype,
          .rows = batch.rows,
          .row_tokens = batch.row_tokens,
          .keep = keep,
          .train = true,
          .seed = 77,
          .step = 5,
          .micro_batch = 2};
}

std::unique_ptr<StageRun> MakeRun(const StageRunOptions& options) {
  auto run = StageRun::Create(options);
  EXPECT_TRUE(run.ok()) << run.status();
  return *std::move(run);
}

std::unique_ptr<StageRun> MakeRun(const TestModel& model,
                                  const TestBatch& batch, Keep keep) {
  return MakeRun(OptionsOf(model, batch, keep));
}

void SetInput(StageRun* run, const TestBatch& batch, const Bytes& input) {
  ASSERT_TRUE(run->SetInput(input.data()).ok());
  if (batch.positions.empty()) return;
  const absl::Status status = run->SetPositions(batch.positions.data());
  ASSERT_TRUE(status.ok()) << status;
}

void Forward(const TestModel& model, StageRun* run, int64_t begin,
             int64_t end) {
  for (int64_t layer = begin; layer < end; ++layer) {
    const absl::Status status = run->ForwardLayer(layer, model.Weights(layer));
    ASSERT_TRUE(status.ok()) << status;
  }
}

void Backward(StageRun* run, int64_t begin, int64_t end, GradientSink* sink) {
  for (int64_t layer = end - 1; layer >= begin; --layer) {
    const absl::Status status = run->BackwardLayer(layer, sink);
    ASSERT_TRUE(status.ok()) << status;
  }
}

// Forward stages and backward stages cut at `cuts` (ascending layers); the last
// stage is fused.
Outcome RunStages(const TestModel& model, const TestBatch& batch,
                  std::vector<int64_t> cuts, Keep keep,
                  double loss_scale = 0.125) {
  const int64_t layers = model.config.layer_count;
  cuts.insert(cuts.begin(), 0);
  Outcome outcome;
  std::vector<Bytes> inputs = {model.Embed(batch.tokens)};
  for (size_t stage = 0; stage + 1 < cuts.size(); ++stage) {
    auto run = MakeRun(model, batch, Keep::kNothing);
    SetInput(run.get(), batch, inputs.back());
    Forward(model, run.get(), cuts[stage], cuts[stage + 1]);
    Bytes output(inputs.back().size());
    EXPECT_TRUE(run->CopyOutput(output.data()).ok());
    inputs.push_back(std::move(output));
  }
  Bytes gradient(inputs[0].size());
  int64_t end = layers;
  for (size_t stage = cuts.size(); stage-- > 0;) {
    auto run = MakeRun(model, batch, keep);
    SetInput(run.get(), batch, inputs[stage]);
    Forward(model, run.get(), cuts[stage], end);
    if (end == layers && stage + 1 == cuts.size()) {
      auto head =
          run->Head(model.Weights(layers), batch.labels.data(),
                    HeadMode::kLossAndGradient, loss_scale, &outcome.sink);
      EXPECT_TRUE(head.ok()) << head.status();
      outcome.head = *head;
    } else {
      EXPECT_TRUE(run->BackwardFrom(gradient.data()).ok());
    }
    Backward(run.get(), cuts[stage], end, &outcome.sink);
    Bytes next(gradient.size());
    EXPECT_TRUE(run->CopyInputGradient(next.data()).ok());
    gradient = std::move(next);
    end = cuts[stage];
  }
  outcome.input_gradient = std::move(gradient);
  return outcome;
}

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b,
                    const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0)
      << what;
}

void ExpectSameBits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.head.loss_sum, b.head.loss_sum);
  EXPECT_EQ(a.input_gradient, b.input_gradient);
  ASSERT_EQ(a.sink.gradients.size(), b.sink.gradients.size());
  for (const auto& [key, gradient] : a.sink.gradients) {
    ExpectSameBits(gradient, b.sink.gradients.at(key),
                   "layer " + std::to_string(key.first) + " role " +
                       std::to_string(static_cast<int>(key.second)));
  }
}

float LargestAbsolute(const std::vector<float>& values) {
  float largest = 0;
  for (float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

class StageSplitTest
    : public testing::TestWithParam<std::tuple<DType, bool, Keep>> {};

TEST_P(StageSplitTest, BitsDoNotDependOnTheSplit) {
  const auto [dtype, tied, keep] = GetParam();
  SetComputeThreads(1);
  const TestModel model(TinyConfig(4, tied), dtype, 7);
  const TestBatch batch = MakeBatch(model.config, 3, 12, 11);
  const Outcome whole = RunStages(model, batch, {}, Keep::kStage);
  EXPECT_GT(whole.head.loss_sum, 0);
  // 4 layers of 11 parameters, final norm, LM head.
  EXPECT_EQ(whole.sink.gradients.size(), 46u);
  ExpectSameBits(RunStages(model, batch, {}, keep), whole);
  for (int64_t cut = 1; cut <= 4; ++cut) {
    SCOPED_TRACE(cut);
    ExpectSameBits(RunStages(model, batch, {cut}, keep), whole);
  }
  ExpectSameBits(RunStages(model, batch, {1, 3}, keep), whole);
  ExpectSameBits(RunStages(model, batch, {1, 2, 3, 4}, keep), whole);
}

INSTANTIATE_TEST_SUITE_P(
    All, StageSplitTest,
    testing::Combine(testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                     testing::Bool(),
                     testing::Values(Keep::kStage, Keep::kLayer)));

double LossOf(const TestModel& model, const TestBatch& batch,
              const StageRunOptions& options) {
  auto run = MakeRun(options);
  const Bytes input = model.Embed(batch.tokens);
  SetInput(run.get(), batch, input);
  Forward(model, run.get(), 0, model.config.layer_count);
  auto head = run->Head(model.Weights(model.config.layer_count),
                        batch.labels.data(), HeadMode::kLossOnly, 1, nullptr);
  EXPECT_TRUE(head.ok()) << head.status();
  return head->loss_sum;
}

double LossOf(const TestModel& model, const TestBatch& batch) {
  return LossOf(model, batch, OptionsOf(model, batch, Keep::kNothing));
}

// Each trained parameter moves along its own gradient by a small step; the loss
// must change by step * |gradient|^2.
void CheckFiniteDifferences(TestModel model, const TestBatch& batch) {
  const int64_t layers = model.config.layer_count;
  const Outcome outcome = RunStages(model, batch, {}, Keep::kStage, 1.0);
  for (size_t unit = 1; unit < model.units.size(); ++unit) {
    const auto number = static_cast<int64_t>(unit);
    if (!IsTrainable(model.config, model.adapter, number)) continue;
    const int64_t layer =
        number > layers + 1 ? number - layers - 2 : number - 1;
    for (const ParameterSpec& parameter : model.units[unit].parameters) {
      const std::vector<float>& gradient =
          outcome.sink.gradients.at({layer, parameter.role});
      double squared = 0;
      for (float g : gradient) squared += static_cast<double>(g) * g;
      ASSERT_GT(squared, 0) << parameter.name;
      const double step = 4e-3 / std::sqrt(squared);
      const AlignedVector<float> saved = model.master[unit];
      const auto loss_at = [&](double distance) {
        float* values =
            model.master[unit].data() + parameter.unit_offset_elements;
        for (size_t i = 0; i < gradient.size(); ++i) {
          values[i] += static_cast<float>(distance * gradient[i]);
        }
        model.Refresh(static_cast<int>(unit));
        const double loss = LossOf(model, batch);
        model.master[unit] = saved;
        model.Refresh(static_cast<int>(unit));
        return loss;
      };
      const double slope = (loss_at(step) - loss_at(-step)) / (2 * step);
      EXPECT_NEAR(slope / squared, 1.0, 0.02) << parameter.name;
    }
  }
}

TEST(StageRunTest, GradientsMatchFiniteDifferences) {
  const TestModel model(TinyConfig(2, false), DType::kF32, 3);
  CheckFiniteDifferences(model, MakeBatch(model.config, 2, 9, 5));
}

TEST(StageRunTest, LossScaleScalesGradientsOnly) {
  const TestModel model(TinyConfig(1, true), DType::kF32, 3);
  const TestBatch batch = MakeBatch(model.config, 2, 9, 5);
  const Outcome one = RunStages(model, batch, {}, Keep::kStage, 1.0);
  const Outcome half = RunStages(model, batch, {}, Keep::kStage, 0.5);
  EXPECT_EQ(one.head.loss_sum, half.head.loss_sum);
  for (const auto& [key, gradient] : one.sink.gradients) {
    const std::vector<float>& scaled = half.sink.gradients.at(key);
    for (size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_EQ(scaled[i], gradient[i] * 0.5f);
    }
  }
}

TEST(StageRunTest, HeadChunksAgree) {
  const TestModel model(TinyConfig(1, false), DType::kF32, 3);
  const TestBatch batch = MakeBatch(model.config, 3, 12, 5);
  const auto run_head = [&](int64_t chunk, Outcome* outcome) {
    StageRunOptions options = OptionsOf(model, batch, Keep::kStage);
    options.head_token_chunk = chunk;
    auto run = MakeRun(options);
    const Bytes input = model.Embed(batch.tokens);
    ASSERT_TRUE(run->SetInput(input.data()).ok());
    auto head = run->Head(model.Weights(1), batch.labels.data(),
                          HeadMode::kLossAndGradient, 1.0, &outcome->sink);
    ASSERT_TRUE(head.ok()) << head.status();
    outcome->head = *head;
    outcome->input_gradient.resize(input.size());
    ASSERT_TRUE(run->CopyInputGradient(outcome->input_gradient.data()).ok());
  };
  Outcome whole;
  run_head(1024, &whole);
  for (int64_t chunk : {1, 5, 8}) {
    SCOPED_TRACE(chunk);
    Outcome chunked;
    run_head(chunk, &chunked);
    EXPECT_NEAR(chunked.head.loss_sum, whole.head.loss_sum, 1e-4);
    EXPECT_EQ(chunked.head.target_tokens, whole.head.target_tokens);
    for (const auto& [key, gradient] : whole.sink.gradients) {
      const std::vector<float>& other = chunked.sink.gradients.at(key);
      for (size_t i = 0; i < gradient.size(); ++i) {
        ASSERT_NEAR(other[i], gradient[i], 1e-5);
      }
    }
  }
}

TEST(StageRunTest, MicroBatchWithoutTargetsHasZeroGradients) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const TestModel model(TinyConfig(2, true), dtype, 3);
    TestBatch batch = MakeBatch(model.config, 2, 9, 5);
    batch.labels.assign(batch.labels.size(), -100);
    const Outcome outcome = RunStages(model, batch, {1}, Keep::kLayer);
    EXPECT_EQ(outcome.head.loss_sum, 0);
    EXPECT_EQ(outcome.head.target_tokens, 0);
    EXPECT_TRUE(outcome.head.finite);
    EXPECT_EQ(outcome.sink.gradients.size(), 24u);
    for (const auto& [key, gradient] : outcome.sink.gradients) {
      EXPECT_EQ(LargestAbsolute(gradient), 0);
    }
    EXPECT_EQ(LossOf(model, batch), 0);
  }
}

TEST(StageRunTest, PaddingIsHarmless) {
  const TestModel model(TinyConfig(2, false), DType::kF32, 3);
  TestBatch batch = MakeBatch(model.config, 2, 12, 5);
  const size_t pad = 12 + 7;  // row 1 has 7 tokens
  for (size_t i = pad; i < 24; ++i) batch.labels[i] = -100;
  batch.labels[pad - 1] = -100;
  const Outcome outcome = RunStages(model, batch, {}, Keep::kStage);
  std::vector<float> gradient(24 * 40);
  ToF32(DType::kF32, outcome.input_gradient.data(), gradient.data(),
        gradient.size());
  EXPECT_EQ(LargestAbsolute({gradient.begin() + pad * 40, gradient.end()}), 0);
  EXPECT_GT(LargestAbsolute({gradient.begin(), gradient.begin() + 40}), 0);

  for (size_t i = pad; i < 24; ++i) batch.tokens[i] = 17;
  const Outcome other = RunStages(model, batch, {}, Keep::kStage);
  EXPECT_EQ(other.head.loss_sum, outcome.head.loss_sum);
}

TEST(StageRunTest, LossOnlyHasTheSameLoss) {
  const TestModel model(TinyConfig(2, true), DType::kBF16, 3);
  const TestBatch batch = MakeBatch(model.config, 2, 9, 5);
  EXPECT_EQ(RunStages(model, batch, {}, Keep::kStage).head.loss_sum,
            LossOf(model, batch));
}

TEST(StageRunTest, NonFiniteLossIsAResult) {
  TestModel model(TinyConfig(1, false), DType::kF32, 3);
  model.master[1][0] = std::numeric_limits<float>::quiet_NaN();
  model.Refresh(1);
  const TestBatch batch = MakeBatch(model.config, 1, 5, 5);
  EXPECT_FALSE(RunStages(model, batch, {}, Keep::kStage).head.finite);
}

TEST(StageRunTest, RefusesBadInput) {
  const TestModel model(TinyConfig(2, false), DType::kF32, 3);
  TestBatch batch = MakeBatch(model.config, 1, 5, 5);
  EXPECT_EQ(
      StageRun::Create({.config = model.config, .rows = 0}).status().code(),
      absl::StatusCode::kInvalidArgument);
  auto run = MakeRun(model, batch, Keep::kStage);
  EXPECT_EQ(run->ForwardLayer(0, model.Weights(0)).code(),
            absl::StatusCode::kFailedPrecondition);
  const Bytes input = model.Embed(batch.tokens);
  ASSERT_TRUE(run->SetInput(input.data()).ok());
  EXPECT_FALSE(run->SetInput(input.data() + 4).ok());  // unaligned
  LayerWeights weights = model.Weights(0);
  weights.weight[static_cast<int>(ParamRole::kKNorm)] = nullptr;
  const absl::Status missing = run->ForwardLayer(0, weights);
  EXPECT_NE(missing.message().find("k_norm"), std::string::npos) << missing;
  ASSERT_TRUE(run->ForwardLayer(0, model.Weights(0)).ok());
  EXPECT_FALSE(run->ForwardLayer(0, model.Weights(0)).ok());
  EXPECT_FALSE(run->ForwardLayer(2, model.Weights(0)).ok());
  GradientMap sink;
  EXPECT_FALSE(run->BackwardLayer(0, &sink).ok());  // no gradient yet
  EXPECT_FALSE(run->CopyInputGradient(nullptr).ok());
  batch.labels[1] = 61;
  const auto head = run->Head(model.Weights(2), batch.labels.data(),
                              HeadMode::kLossOnly, 1, nullptr);
  EXPECT_NE(head.status().message().find("label 61 at position 1"),
            std::string::npos)
      << head.status();
}

// All seven matrices, or some.
AdapterConfig Adapter(double dropout, uint32_t targets = 0b1111111) {
  return {.rank = 3, .alpha = 6, .dropout = dropout, .targets = targets};
}

// Two sequences a row.
TestBatch MakePackedBatch(const ModelConfig& config, int64_t rows,
                          int64_t row_tokens, uint64_t seed) {
  TestBatch batch = MakeBatch(config, rows, row_tokens, seed);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = 3 + row;
    for (int64_t i = 0; i < row_tokens; ++i) {
      batch.positions.push_back(
          static_cast<int32_t>(i < first ? i : i - first));
    }
  }
  return batch;
}

class AdapterSplitTest
    : public testing::TestWithParam<std::tuple<DType, bool, Keep, bool>> {};

TEST_P(AdapterSplitTest, BitsDoNotDependOnTheSplit) {
  const auto [dtype, tied, keep, packed] = GetParam();
  SetComputeThreads(1);
  const TestModel model(TinyConfig(3, tied), dtype, 7, Adapter(0.3, 0b0110101));
  const TestBatch batch = packed ? MakePackedBatch(model.config, 3, 12, 11)
                                 : MakeBatch(model.config, 3, 12, 11);
  const Outcome whole = RunStages(model, batch, {}, Keep::kStage);
  EXPECT_GT(whole.head.loss_sum, 0);
  // A and B of four matrices in each layer, and nothing else.
  EXPECT_EQ(whole.sink.gradients.size(), 24u);
  for (const auto& [key, gradient] : whole.sink.gradients) {
    EXPECT_GE(key.second, ParamRole::kQLoraA);
    EXPECT_GT(LargestAbsolute(gradient), 0);
  }
  ExpectSameBits(RunStages(model, batch, {}, keep), whole);
  for (int64_t cut = 1; cut <= 3; ++cut) {
    SCOPED_TRACE(cut);
    ExpectSameBits(RunStages(model, batch, {cut}, keep), whole);
  }
  ExpectSameBits(RunStages(model, batch, {1, 2, 3}, keep), whole);
}

INSTANTIATE_TEST_SUITE_P(
    All, AdapterSplitTest,
    testing::Combine(testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                     testing::Bool(),
                     testing::Values(Keep::kStage, Keep::kLayer),
                     testing::Bool()));

class AdapterRunTest : public testing::Test {
 protected:
  AdapterRunTest() { SetComputeThreads(1); }
};

TEST_F(AdapterRunTest, GradientsMatchFiniteDifferences) {
  for (const double dropout : {0.0, 0.4}) {
    SCOPED_TRACE(dropout);
    const TestModel model(TinyConfig(2, false), DType::kF32, 3,
                          Adapter(dropout));
    CheckFiniteDifferences(model, MakePackedBatch(model.config, 2, 9, 5));
  }
}

TEST_F(AdapterRunTest, AZeroBLeavesTheModelAsItIs) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const TestModel plain(TinyConfig(2, true), dtype, 3);
    TestModel model(TinyConfig(2, true), dtype, 3, Adapter(0.5));
    for (int unit : {4, 5}) {
      for (const ParameterSpec& parameter :
           model.units[static_cast<size_t>(unit)].parameters) {
        if (parameter.role < ParamRole::kQLoraB) continue;
        std::fill_n(model.master[static_cast<size_t>(unit)].begin() +
                        parameter.unit_offset_elements,
                    parameter.element_count, 0.0f);
      }
      model.Refresh(unit);
    }
    const TestBatch batch = MakeBatch(model.config, 2, 9, 5);
    const Outcome adapted = RunStages(model, batch, {}, Keep::kStage);
    const Outcome base = RunStages(plain, batch, {}, Keep::kStage);
    EXPECT_EQ(adapted.head.loss_sum, base.head.loss_sum);
    EXPECT_EQ(
        LargestAbsolute(adapted.sink.gradients.at({0, ParamRole::kQLoraA})), 0);
    EXPECT_GT(
        LargestAbsolute(adapted.sink.gradients.at({0, ParamRole::kQLoraB})), 0);
  }
}

TEST_F(AdapterRunTest, DropoutIsOfTrainingStepsAndKeyed) {
  const TestModel model(TinyConfig(1, true), DType::kF32, 3, Adapter(0.5));
  const TestModel undropped(TinyConfig(1, true), DType::kF32, 3, Adapter(0));
  const TestBatch batch = MakeBatch(model.config, 2, 9, 5);
  const StageRunOptions train = OptionsOf(model, batch, Keep::kNothing);
  const auto loss_with = [&](auto change) {
    StageRunOptions options = train;
    change(options);
    return LossOf(model, batch, options);
  };
  const double loss = LossOf(model, batch, train);
  EXPECT_EQ(LossOf(model, batch, train), loss);
  EXPECT_EQ(loss_with([](auto& o) { o.train = false; }),
            LossOf(undropped, batch));
  EXPECT_NE(LossOf(undropped, batch), loss);
  EXPECT_NE(loss_with([](auto& o) { o.seed = 78; }), loss);
  EXPECT_NE(loss_with([](auto& o) { o.step = 6; }), loss);
  EXPECT_NE(loss_with([](auto& o) { o.micro_batch = 3; }), loss);
}

TEST_F(AdapterRunTest, RefusesBadInput) {
  const TestModel model(TinyConfig(1, false), DType::kF32, 3, Adapter(0));
  const TestBatch batch = MakeBatch(model.config, 1, 5, 5);
  const auto refuses = [&](auto change, const char* says) {
    StageRunOptions options = OptionsOf(model, batch, Keep::kStage);
    change(options);
    const absl::Status status = StageRun::Create(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(says), std::string::npos) << status;
  };
  refuses([](auto& o) { o.adapter.targets = 0; }, "targets 0");
  refuses([](auto& o) { o.adapter.targets = 128; }, "targets 128");
  refuses([](auto& o) { o.adapter.dropout = 1; }, "dropout 1");
  refuses([](auto& o) { o.step = uint64_t{1} << 32; }, "below 2^32");
  auto run = MakeRun(model, batch, Keep::kStage);
  const Bytes input = model.Embed(batch.tokens);
  const int32_t positions[] = {0, 1, 0, 2, 3};
  EXPECT_EQ(run->SetPositions(positions).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(run->SetInput(input.data()).ok());
  EXPECT_EQ(run->SetPositions(positions).code(),
            absl::StatusCode::kInvalidArgument);
  LayerWeights weights = model.Weights(0);
  weights.weight[static_cast<int>(ParamRole::kVLoraB)] = nullptr;
  const absl::Status missing = run->ForwardLayer(0, weights);
  EXPECT_NE(missing.message().find("v_proj.lora_B"), std::string::npos)
      << missing;
}

}  // namespace
}  // namespace roundhouse::worker
