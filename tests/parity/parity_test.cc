// Ours against what real transformers and PEFT computed (tests/parity/
// generate.py, generate_adapters.py).  Every figure is printed beside its
// limit; limits: docs/design/numerics.md, "Parity".
#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parity/batches.h"
#include "tests/parity/figures.h"
#include "tests/parity/goldens.h"
#include "tests/parity/step_checks.h"
#include "tests/parity/subject.h"
#include "worker/model/sequential.h"

namespace roundhouse::parity {
namespace {

using worker::SequentialBatch;
using worker::SequentialOptions;
using worker::SequentialTrainer;

// Micro-batches of a step of eight sequences: 1 x 8, 2 x 4, 8 x 1.
constexpr int64_t kSplits[] = {1, 2, 8};

constexpr HalfRatios kRatios{.bf16 = kBf16Ratio, .fp16 = kFp16Ratio};

class ParityTest : public testing::TestWithParam<Case> {
 protected:
  ParityTest()
      : subject_(GetParam()),
        goldens_(subject_.goldens()),
        batches_(subject_.batches()) {}

  void CheckTokenLosses(const std::vector<float>& losses, DType dtype) {
    parity::CheckTokenLosses(goldens_, losses, dtype, kRatios);
  }
  void CheckLogitsAndLosses(DType dtype);
  // `scale` is the loss's.
  void CheckGradients(const SequentialTrainer& trainer, DType dtype,
                      float scale = 1) {
    parity::CheckGradients(
        subject_, [&](int unit) { return trainer.gradient(unit); }, dtype,
        scale, kRatios);
  }
  void CheckPacked(DType dtype);
  // Ten steps; batches_of(step) are one's micro-batches, and noise(parameter
  // name) how far transformers' update is from its own, computed otherwise.
  template <typename BatchesOf, typename Noise>
  void CheckSteps(const std::string& how, int64_t round_limit,
                  BatchesOf batches_of, Noise noise);
  template <typename Noise>
  void CheckUpdates(const std::string& how, const SequentialTrainer& trainer,
                    Noise noise);
  double EagerNoise(const std::string& name) const {
    return goldens_.Scalar("eager.final." + name);
  }

  const Subject subject_;
  const Goldens& goldens_;
  const Batches& batches_;
};

void ParityTest::CheckLogitsAndLosses(DType dtype) {
  Outputs outputs = subject_.Run(dtype, batches_.First(dtype));
  EXPECT_EQ(batches_.WithoutPadding(outputs.picks),
            batches_.WithoutPadding(batches_.picks));
  const std::vector<float> expected = goldens_.Floats("logits");
  ASSERT_GE(outputs.logits.size(), expected.size());
  std::vector<float>& logits = outputs.logits;
  logits.resize(expected.size());  // there may be goldens of some rows only
  double largest = 0, scale = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (expected[i] == 0) logits[i] = 0;  // padding
    largest = std::max<double>(largest, std::abs(logits[i] - expected[i]));
    scale = std::max<double>(scale, std::abs(expected[i]));
  }
  if (dtype == DType::kF32) {
    Check("logits, largest |d| / largest |logit|", largest / scale, kTolerance);
  } else {
    Check("logits, relative L2", Relative(logits, expected),
          kRatios.Of(dtype) * goldens_.Scalar("bf16.logits"));
  }
  CheckTokenLosses(outputs.token_losses, dtype);
}

// Packed rows of ours against transformers' rows of one sequence each.
void ParityTest::CheckPacked(DType dtype) {
  const PackedBatch packed(batches_, 0);
  ASSERT_LT(packed.Borrow().rows, batches_.rows());
  ASSERT_EQ(packed.sequences(), batches_.rows());
  CheckTokenLosses(
      packed.Unpack(subject_.Run(dtype, packed.Borrow(dtype)).token_losses),
      dtype);
  const auto trainer = subject_.MakeTrainer({.dtype = dtype});
  const auto step = trainer->Step({packed.Borrow(dtype)}, kLearningRate);
  ASSERT_TRUE(step.ok()) << step.status();
  const double error =
      std::abs(step->loss.mean() / goldens_.Floats("step_loss")[0] - 1);
  Check("step loss, relative", error,
        dtype == DType::kF32 ? kTolerance
                             : kBf16Ratio * goldens_.Scalar("bf16.token_loss"));
  CheckGradients(*trainer, dtype);
}

// Adam amplifies the noise of a gradient that is nearly 0: hardly closer to
// transformers than transformers is to itself.
template <typename Noise>
void ParityTest::CheckUpdates(const std::string& how,
                              const SequentialTrainer& trainer, Noise noise) {
  subject_.ForEachTrained([&](int unit, const ParameterSpec& parameter) {
    const std::vector<float> start = subject_.Start(unit, parameter);
    std::vector<float> ours,
        theirs = goldens_.Floats("final." + parameter.name);
    ASSERT_EQ(theirs.size(), start.size());
    const float* const end =
        trainer.master(unit) + parameter.unit_offset_elements;
    for (size_t i = 0; i < theirs.size(); ++i) {
      ours.push_back(end[i] - start[i]);
      theirs[i] -= start[i];
    }
    const double own = noise(parameter.name);
    Check(how + "update of " + parameter.name, Relative(ours, theirs),
          std::max(kUpdateTolerance, kNoiseRatio * own), own);
  });
}

template <typename BatchesOf, typename Noise>
void ParityTest::CheckSteps(const std::string& how, int64_t round_limit,
                            BatchesOf batches_of, Noise noise) {
  const auto trainer = subject_.MakeTrainer({.round_limit = round_limit,
                                             .group_limit = 2,
                                             .adamw = {.weight_decay = 0.01},
                                             .max_gradient_norm = 1.0});
  const std::vector<float> losses = goldens_.Floats("step_loss");
  const std::vector<float> norms = goldens_.Floats("step_norm");
  double worst_loss = 0, worst_norm = 0;
  ASSERT_EQ(batches_.steps(), 10);
  for (int64_t i = 0; i < batches_.steps(); ++i) {
    const auto step = trainer->Step(batches_of(i), kLearningRate);
    ASSERT_TRUE(step.ok()) << step.status();
    ASSERT_GT(step->gradient_norm, 1.0) << "nothing is clipped";
    const auto at = static_cast<size_t>(i);
    worst_loss =
        std::max(worst_loss, std::abs(step->loss.mean() / losses[at] - 1));
    worst_norm =
        std::max(worst_norm, std::abs(step->gradient_norm / norms[at] - 1));
  }
  Check(how + "worst step loss, relative", worst_loss, kTolerance);
  Check(how + "worst gradient norm, relative", worst_norm, kTolerance);
  CheckUpdates(how, *trainer, noise);
}

TEST_P(ParityTest, LogitsAndTokenLossesFp32) {
  CheckLogitsAndLosses(DType::kF32);
}

TEST_P(ParityTest, LogitsAndTokenLossesBf16) {
  CheckLogitsAndLosses(DType::kBF16);
}

TEST_P(ParityTest, EveryGradientBf16) {
  const auto trainer = subject_.MakeTrainer({.dtype = DType::kBF16});
  const auto step =
      trainer->Step({batches_.First(DType::kBF16)}, kLearningRate);
  ASSERT_TRUE(step.ok()) << step.status();
  CheckGradients(*trainer, DType::kBF16);
}

TEST_P(ParityTest, LogitsAndTokenLossesFp16) {
  CheckLogitsAndLosses(DType::kF16);
}

// At the first scale at which they do not overflow.
TEST_P(ParityTest, EveryGradientFp16) {
  const auto trainer =
      subject_.MakeTrainer({.dtype = DType::kF16, .scale_loss = true});
  bool updated = false;
  float scale = 0;
  while (!updated && !trainer->loss_scaler().exhausted()) {
    scale = trainer->loss_scaler().scale();
    const auto step =
        trainer->Step({batches_.First(DType::kF16)}, kLearningRate);
    ASSERT_TRUE(step.ok()) << step.status();
    updated = step->updated;
  }
  ASSERT_TRUE(updated);
  CheckGradients(*trainer, DType::kF16, scale);
}

TEST_P(ParityTest, PackedFp32) { CheckPacked(DType::kF32); }

TEST_P(ParityTest, PackedBf16) { CheckPacked(DType::kBF16); }

TEST_P(ParityTest, EveryGradientUnderThreeSplitsFp32) {
  const std::vector<float> losses = goldens_.Floats("split_loss");
  ASSERT_EQ(losses.size(), std::size(kSplits));
  for (size_t i = 0; i < losses.size(); ++i) {
    const int64_t count = kSplits[i];
    SCOPED_TRACE(count);
    const auto trainer =
        subject_.MakeTrainer({.round_limit = count, .group_limit = 2});
    const auto step = trainer->Step(batches_.Split(0, count), kLearningRate);
    ASSERT_TRUE(step.ok()) << step.status();
    Check(std::to_string(count) + " micro-batches: step loss, relative",
          std::abs(step->loss.mean() / losses[i] - 1), kTolerance);
    CheckGradients(*trainer, DType::kF32);
  }
}

TEST_P(ParityTest, TenAdamWStepsUnderThreeSplitsFp32) {
  for (int64_t count : kSplits) {
    CheckSteps(
        std::to_string(count) + " micro-batches: ", count,
        [&](int64_t step) { return batches_.Split(step, count); },
        [&](const std::string& name) { return EagerNoise(name); });
  }
}

TEST_P(ParityTest, TenAdamWStepsPackedFp32) {
  std::vector<PackedBatch> packed;
  for (int64_t step = 0; step < batches_.steps(); ++step) {
    packed.emplace_back(batches_, step);
  }
  const Goldens own(GoldensFolder() + "/" + GetParam().name +
                    "/packed.safetensors");
  CheckSteps(
      "", 1,
      [&](int64_t step) {
        return std::vector<SequentialBatch>{
            packed[static_cast<size_t>(step)].Borrow()};
      },
      [&](const std::string& name) {
        if (GetParam().adapted) return EagerNoise(name);
        return std::max<double>(EagerNoise(name), own.Scalar("final." + name));
      });
}

INSTANTIATE_TEST_SUITE_P(Families, ParityTest, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return NameOf(info.param); });

INSTANTIATE_TEST_SUITE_P(Adapters, ParityTest, testing::ValuesIn(kAdapters),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace roundhouse::parity
