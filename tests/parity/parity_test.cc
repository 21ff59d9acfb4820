// Ours against what real transformers computed (tests/parity/generate.py).
// Every figure is printed beside its limit; limits: ECOSYSTEM.md, "Parity".
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "base/convert.h"
#include "base/lr_schedule.h"
#include "gtest/gtest.h"
#include "tests/parity/goldens.h"
#include "worker/model/generation.h"
#include "worker/model/key_value_layout.h"
#include "worker/model/logits.h"
#include "worker/model/sequential.h"
#include "worker/model/stage_run.h"
#include "worker/model/token_draw.h"

namespace roundhouse::parity {
namespace {

using worker::AlignedVector;
using worker::HeadMode;
using worker::Keep;
using worker::LayerWeights;
using worker::SequentialBatch;
using worker::SequentialOptions;
using worker::SequentialTrainer;
using worker::StageRun;

constexpr double kTolerance = 1e-5;        // fp32 logits, losses, gradients
constexpr double kUpdateTolerance = 1e-3;  // 10 AdamW steps
constexpr double kBf16Ratio = 1.5;         // of transformers' own error
constexpr double kLearningRate = 1e-3;

// `own` is how much transformers' eager attention differs from its SDPA.
void Check(const std::string& what, double figure, double limit,
           double own = std::nan("")) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::printf("%-40s %-58s %.2e  limit %.2e", test->name(), what.c_str(),
              figure, limit);
  if (!std::isnan(own)) std::printf("  eager-SDPA %.2e", own);
  std::printf("\n");
  EXPECT_LE(figure, limit) << what;
}

double Norm(const std::vector<float>& values) {
  double sum = 0;
  for (float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

// |value - reference| / |reference|, as L2 norms.
double Relative(const std::vector<float>& value,
                const std::vector<float>& reference) {
  EXPECT_EQ(value.size(), reference.size());
  EXPECT_GT(Norm(reference), 0);
  std::vector<float> difference(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    difference[i] = value[i] - reference[i];
  }
  return Norm(difference) / Norm(reference);
}

struct Batches {
  explicit Batches(const Goldens& goldens)
      : shape(goldens.Shape("tokens")),
        tokens(goldens.Ints("tokens")),
        labels(goldens.Ints("labels")) {}

  int64_t steps() const { return shape[0]; }
  int64_t rows() const { return shape[1]; }
  int64_t row_tokens() const { return shape[2]; }
  // The micro-batches of a step, `count` of equal size.
  std::vector<SequentialBatch> Split(int64_t step, int64_t count) const {
    std::vector<SequentialBatch> batches;
    const int64_t rows_each = rows() / count;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at =
          step * rows() * row_tokens() + i * rows_each * row_tokens();
      batches.push_back(
          {rows_each, row_tokens(), tokens.data() + at, labels.data() + at});
    }
    return batches;
  }

  std::vector<int64_t> shape;
  std::vector<int32_t> tokens, labels;
};

// Step 0's sequences, as many to a row of twice their padded length as fit.
class PackedBatch {
 public:
  explicit PackedBatch(const Batches& batches)
      : row_tokens_(2 * batches.row_tokens()) {
    for (int64_t row = 0; row < batches.rows(); ++row) {
      const int64_t begin = row * batches.row_tokens();
      int64_t tokens = batches.row_tokens();
      // The last token of a sequence has no target, the one before it has.
      while (batches.labels[static_cast<size_t>(begin + tokens - 2)] == -100) {
        --tokens;
      }
      Append(batches, begin, tokens);
    }
    PadRow();
  }

  SequentialBatch Borrow() const {
    return {static_cast<int64_t>(tokens_.size()) / row_tokens_, row_tokens_,
            tokens_.data(), labels_.data(), positions_.data()};
  }
  int64_t sequences() const {
    return std::count(positions_.begin(), positions_.end(), 0);
  }

 private:
  int64_t RoomInRow() const {
    const int64_t used = static_cast<int64_t>(tokens_.size()) % row_tokens_;
    return used == 0 ? 0 : row_tokens_ - used;
  }

  void PadRow() {
    for (int64_t room = RoomInRow(); room > 0; --room) {
      tokens_.push_back(0);
      labels_.push_back(-100);
      positions_.push_back(positions_.back() + 1);
    }
  }

  void Append(const Batches& batches, int64_t begin, int64_t tokens) {
    if (RoomInRow() < tokens) PadRow();
    for (int64_t i = 0; i < tokens; ++i) {
      const auto at = static_cast<size_t>(begin + i);
      tokens_.push_back(batches.tokens[at]);
      labels_.push_back(batches.labels[at]);
      positions_.push_back(static_cast<int32_t>(i));
    }
  }

  const int64_t row_tokens_;
  std::vector<int32_t> tokens_, labels_, positions_;
};

class ParityTest : public testing::TestWithParam<const char*> {
 protected:
  ParityTest()
      : goldens_(Folder() + "/goldens.safetensors"),
        checkpoint_(Folder()),
        batches_(goldens_) {
    worker::SetComputeThreads(1);
  }

  static std::string Folder() { return GoldensFolder() + "/" + GetParam(); }

  std::unique_ptr<SequentialTrainer> MakeTrainer(SequentialOptions options) {
    options.config = checkpoint_.config;
    auto trainer = SequentialTrainer::Create(options);
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    for (size_t unit = 0; unit < checkpoint_.units.size(); ++unit) {
      EXPECT_TRUE((*trainer)
                      ->SetUnit(static_cast<int>(unit),
                                checkpoint_.weights[unit].data())
                      .ok());
    }
    return *std::move(trainer);
  }

  // Calls visit(name, unit, parameter).
  template <typename Visit>
  void ForEachParameter(Visit visit) const {
    for (size_t unit = 0; unit < checkpoint_.units.size(); ++unit) {
      for (const auto& parameter : checkpoint_.units[unit].parameters) {
        visit(parameter.name, static_cast<int>(unit), parameter);
      }
    }
  }

  void CheckLogitsAndLosses(DType dtype);
  void CheckGradients(const SequentialTrainer& trainer, DType dtype);
  void CheckGradients(DType dtype);
  void CheckPacked(DType dtype);

  const Goldens goldens_;
  const Checkpoint checkpoint_;
  const Batches batches_;
};

// Weights of one layer out of unit arrays in the compute dtype.
LayerWeights WeightsOf(const ModelConfig& config,
                       const SequentialTrainer& trainer, DType dtype,
                       int64_t layer) {
  LayerWeights weights;
  for (int unit : UnitsOfLayer(config, layer)) {
    for (const auto& parameter :
         trainer.units()[static_cast<size_t>(unit)].parameters) {
      const ParamRole role = parameter.role == ParamRole::kEmbedding
                                 ? ParamRole::kLmHead
                                 : parameter.role;
      weights.weight[static_cast<int>(role)] =
          trainer.compute(unit) +
          static_cast<uint64_t>(parameter.unit_offset_elements) *
              DTypeBytes(dtype);
    }
  }
  return weights;
}

void ParityTest::CheckLogitsAndLosses(DType dtype) {
  const ModelConfig& config = checkpoint_.config;
  const auto trainer = MakeTrainer({.dtype = dtype});
  const SequentialBatch batch = batches_.Split(0, 1)[0];
  const int64_t tokens = batch.rows * batch.row_tokens;
  const size_t row_bytes =
      static_cast<size_t>(config.hidden_size) * DTypeBytes(dtype);
  AlignedVector<std::byte> states(static_cast<size_t>(tokens) * row_bytes);
  for (int64_t i = 0; i < tokens; ++i) {
    std::copy_n(
        trainer->compute(0) + static_cast<size_t>(batch.tokens[i]) * row_bytes,
        row_bytes, states.data() + static_cast<size_t>(i) * row_bytes);
  }
  auto run = *StageRun::Create({.config = config,
                                .dtype = dtype,
                                .rows = batch.rows,
                                .row_tokens = batch.row_tokens});
  ASSERT_TRUE(run->SetInput(states.data()).ok());
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    ASSERT_TRUE(
        run->ForwardLayer(layer, WeightsOf(config, *trainer, dtype, layer))
            .ok());
  }
  const LayerWeights head =
      WeightsOf(config, *trainer, dtype, config.layer_count);
  AlignedVector<std::byte> output(states.size());
  ASSERT_TRUE(run->CopyOutput(output.data()).ok());
  std::vector<float> logits(static_cast<size_t>(tokens * config.vocab_size));
  ASSERT_TRUE(worker::ComputeLogits(config, dtype, output.data(), tokens, head,
                                    logits.data())
                  .ok());
  const std::vector<float> expected = goldens_.Floats("logits");
  ASSERT_EQ(logits.size(), expected.size());
  double largest = 0, scale = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (expected[i] == 0) logits[i] = 0;  // padding
    largest = std::max<double>(largest, std::abs(logits[i] - expected[i]));
    scale = std::max<double>(scale, std::abs(expected[i]));
  }
  // Each token's loss: the head with that one target.
  std::vector<float> losses(static_cast<size_t>(tokens), 0.0f);
  for (int64_t i = 0; i < tokens; ++i) {
    if (batch.labels[i] == -100) continue;
    std::vector<int32_t> labels(static_cast<size_t>(tokens), -100);
    labels[static_cast<size_t>(i)] = batch.labels[i];
    auto loss = run->Head(head, labels.data(), HeadMode::kLossOnly, 1, nullptr);
    ASSERT_TRUE(loss.ok()) << loss.status();
    losses[static_cast<size_t>(i)] = static_cast<float>(loss->loss_sum);
  }
  const double loss_error = Relative(losses, goldens_.Floats("token_loss"));
  if (dtype == DType::kF32) {
    Check("logits, largest |d| / largest |logit|", largest / scale, kTolerance);
    Check("token losses, relative L2", loss_error, kTolerance,
          goldens_.Scalar("eager.token_loss"));
  } else {
    Check("logits, relative L2", Relative(logits, expected),
          kBf16Ratio * goldens_.Scalar("bf16.logits"));
    Check("token losses, relative L2", loss_error,
          kBf16Ratio * goldens_.Scalar("bf16.token_loss"));
  }
}

// Of step 0.
void ParityTest::CheckGradients(const SequentialTrainer& trainer, DType dtype) {
  ForEachParameter([&](const std::string& name, int unit,
                       const ParameterSpec& parameter) {
    const float* values =
        trainer.gradient(unit) + parameter.unit_offset_elements;
    const double error = Relative({values, values + parameter.element_count},
                                  goldens_.Floats("grad." + name));
    if (dtype == DType::kF32) {
      Check(name, error, kTolerance, goldens_.Scalar("eager.grad." + name));
    } else {
      Check(name, error, kBf16Ratio * goldens_.Scalar("bf16.grad." + name));
    }
  });
}

void ParityTest::CheckGradients(DType dtype) {
  const auto trainer = MakeTrainer({.dtype = dtype});
  const auto step = trainer->Step(batches_.Split(0, 1), kLearningRate);
  ASSERT_TRUE(step.ok()) << step.status();
  CheckGradients(*trainer, dtype);
}

// Packed rows of ours against transformers' rows of one sequence each.
void ParityTest::CheckPacked(DType dtype) {
  const PackedBatch packed(batches_);
  ASSERT_LT(packed.Borrow().rows, batches_.rows());
  ASSERT_EQ(packed.sequences(), batches_.rows());
  const auto trainer = MakeTrainer({.dtype = dtype});
  const auto step = trainer->Step({packed.Borrow()}, kLearningRate);
  ASSERT_TRUE(step.ok()) << step.status();
  const double error =
      std::abs(step->loss.mean() / goldens_.Floats("step_loss")[0] - 1);
  Check("step loss, relative", error,
        dtype == DType::kF32 ? kTolerance
                             : kBf16Ratio * goldens_.Scalar("bf16.token_loss"));
  CheckGradients(*trainer, dtype);
}

TEST_P(ParityTest, LogitsAndTokenLossesFp32) {
  CheckLogitsAndLosses(DType::kF32);
}

TEST_P(ParityTest, LogitsAndTokenLossesBf16) {
  CheckLogitsAndLosses(DType::kBF16);
}

TEST_P(ParityTest, EveryGradientFp32) { CheckGradients(DType::kF32); }

TEST_P(ParityTest, EveryGradientBf16) { CheckGradients(DType::kBF16); }

TEST_P(ParityTest, PackedFp32) { CheckPacked(DType::kF32); }

TEST_P(ParityTest, PackedBf16) { CheckPacked(DType::kBF16); }

TEST_P(ParityTest, AccumulationFp32) {
  const std::vector<float> losses = goldens_.Floats("split_loss");
  const int64_t counts[] = {1, 2, 8};
  for (int i = 0; i < 3; ++i) {
    const auto trainer =
        MakeTrainer({.round_limit = counts[i], .group_limit = 2});
    const auto step =
        trainer->Step(batches_.Split(0, counts[i]), kLearningRate);
    ASSERT_TRUE(step.ok()) << step.status();
    const std::string split = std::to_string(counts[i]) + " micro-batches: ";
    Check(split + "step loss, relative",
          std::abs(step->loss.mean() / losses[i] - 1), kTolerance);
    double worst = 0;
    ForEachParameter([&](const std::string& name, int unit,
                         const ParameterSpec& parameter) {
      const float* values =
          trainer->gradient(unit) + parameter.unit_offset_elements;
      worst =
          std::max(worst, Relative({values, values + parameter.element_count},
                                   goldens_.Floats("grad." + name)));
    });
    Check(split + "worst gradient, relative L2", worst, kTolerance);
  }
}

TEST_P(ParityTest, TenAdamWStepsFp32) {
  const auto trainer = MakeTrainer({.round_limit = 4,
                                    .group_limit = 2,
                                    .adamw = {.weight_decay = 0.01},
                                    .max_gradient_norm = 1.0});
  const std::vector<float> losses = goldens_.Floats("step_loss");
  const std::vector<float> norms = goldens_.Floats("step_norm");
  double worst_loss = 0, worst_norm = 0;
  ASSERT_EQ(batches_.steps(), 10);
  for (int64_t i = 0; i < batches_.steps(); ++i) {
    const auto step = trainer->Step(batches_.Split(i, 4), kLearningRate);
    ASSERT_TRUE(step.ok()) << step.status();
    ASSERT_GT(step->gradient_norm, 1.0) << "nothing is clipped";
    const auto at = static_cast<size_t>(i);
    worst_loss =
        std::max(worst_loss, std::abs(step->loss.mean() / losses[at] - 1));
    worst_norm =
        std::max(worst_norm, std::abs(step->gradient_norm / norms[at] - 1));
  }
  Check("worst step loss, relative", worst_loss, kTolerance);
  Check("worst gradient norm, relative", worst_norm, kTolerance);
  ForEachParameter([&](const std::string& name, int unit,
                       const ParameterSpec& parameter) {
    std::vector<float> ours, theirs = goldens_.Floats("final." + name);
    for (size_t i = 0; i < theirs.size(); ++i) {
      const size_t at = static_cast<size_t>(parameter.unit_offset_elements) + i;
      const float start = checkpoint_.weights[static_cast<size_t>(unit)][at];
      ours.push_back(trainer->master(unit)[at] - start);
      theirs[i] -= start;
    }
    // Adam amplifies the noise of a gradient that is nearly 0: no closer to
    // transformers than its own two attentions are to each other.
    const double own = goldens_.Scalar("eager.final." + name);
    Check("update of " + name, Relative(ours, theirs),
          std::max(kUpdateTolerance, own), own);
  });
}

// One greedy step behind each sequence, with keys and values of those before.
class GreedySequences {
 public:
  GreedySequences(const ModelConfig& config, const SequentialTrainer& trainer)
      : config_(config),
        trainer_(trainer),
        run_(*worker::GenerationRun::Create({.config = config})) {}

  void Add(std::vector<int32_t> prompt) {
    const worker::KeyValueLayout layout(config_, DType::kF32,
                                        config_.max_position_tokens);
    caches_.emplace_back(layout.total_bytes());
    fresh_.push_back(std::move(prompt));
    cached_.push_back(0);
  }

  // By sequence.
  std::vector<int32_t> Draw() {
    RunStep();
    std::vector<float> logits(static_cast<size_t>(config_.vocab_size));
    std::vector<int32_t> drawn;
    for (size_t i = 0; i < fresh_.size(); ++i) {
      EXPECT_TRUE(run_->Logits(WeightsOf(config_, trainer_, DType::kF32,
                                         config_.layer_count),
                               i, 1, logits.data())
                      .ok());
      drawn.push_back(
          *worker::DrawToken(logits.data(), config_.vocab_size, 0, {}));
      cached_[i] += static_cast<int64_t>(fresh_[i].size());
      fresh_[i] = {drawn.back()};
    }
    return drawn;
  }

 private:
  void RunStep() {
    const auto hidden = static_cast<size_t>(config_.hidden_size);
    const auto* const embedding =
        reinterpret_cast<const float*>(trainer_.compute(0));
    AlignedVector<float> input;
    std::vector<worker::SequenceStep> steps;
    for (size_t i = 0; i < fresh_.size(); ++i) {
      for (int32_t token : fresh_[i]) {
        const float* const row =
            embedding + static_cast<size_t>(token) * hidden;
        input.insert(input.end(), row, row + hidden);
      }
      steps.push_back({.cache = caches_[i].data(),
                       .capacity_tokens = config_.max_position_tokens,
                       .cached_tokens = cached_[i],
                       .new_tokens = static_cast<int64_t>(fresh_[i].size())});
    }
    ASSERT_TRUE(run_->SetInput(input.data(), steps).ok());
    for (int64_t layer = 0; layer < config_.layer_count; ++layer) {
      ASSERT_TRUE(run_->ForwardLayer(layer, WeightsOf(config_, trainer_,
                                                      DType::kF32, layer))
                      .ok());
    }
  }

  const ModelConfig& config_;
  const SequentialTrainer& trainer_;
  std::unique_ptr<worker::GenerationRun> run_;
  std::vector<AlignedVector<std::byte>> caches_;
  std::vector<std::vector<int32_t>> fresh_;  // not yet through the model
  std::vector<int64_t> cached_;
};

TEST_P(ParityTest, GreedyTokensFp32) {
  const Goldens generated(Folder() + "/generated.safetensors");
  const std::vector<int32_t> lengths = generated.Ints("lengths");
  const std::vector<int32_t> tokens = generated.Ints("tokens");
  const auto trainer = MakeTrainer({});
  GreedySequences sequences(checkpoint_.config, *trainer);
  ASSERT_EQ(static_cast<int64_t>(lengths.size()), batches_.rows());
  for (size_t row = 0; row < lengths.size(); ++row) {
    const auto begin = batches_.tokens.begin() +
                       static_cast<std::ptrdiff_t>(row) * batches_.row_tokens();
    sequences.Add({begin, begin + lengths[row]});
  }
  const size_t count = tokens.size() / lengths.size();
  ASSERT_GE(count, 10u);
  int differences = 0;
  for (size_t i = 0; i < count; ++i) {
    const std::vector<int32_t> drawn = sequences.Draw();
    for (size_t row = 0; row < lengths.size(); ++row) {
      if (drawn[row] != tokens[row * count + i]) ++differences;
    }
  }
  Check("tokens other than those of generate()", differences, 0.5);
}

INSTANTIATE_TEST_SUITE_P(Families, ParityTest,
                         testing::Values("llama_tied", "llama_untied",
                                         "mistral_untied", "qwen2_tied",
                                         "qwen2_untied", "qwen3_tied",
                                         "qwen3_untied"),
                         [](const auto& info) { return info.param; });

TEST(ScheduleParityTest, LearningRates) {
  const Goldens goldens(GoldensFolder() + "/schedules.safetensors");
  for (const auto& [name, type] :
       {std::pair("constant", LrScheduleType::kConstant),
        std::pair("linear", LrScheduleType::kLinear),
        std::pair("cosine", LrScheduleType::kCosine)}) {
    const std::vector<double> expected = goldens.Doubles(name);
    ASSERT_EQ(expected.size(), 21u);
    double worst = 0;
    for (size_t step = 0; step < expected.size(); ++step) {
      const LrSchedule schedule{type, kLearningRate, 4, 20};
      worst = std::max(
          worst, std::abs(LearningRate(schedule, static_cast<int64_t>(step)) -
                          expected[step]));
    }
    Check(std::string(name) + ", largest |d| / peak", worst / kLearningRate,
          1e-15);
  }
}

}  // namespace
}  // namespace roundhouse::parity
