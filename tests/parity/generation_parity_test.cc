// Ours against what real transformers generated, and its schedules
// (tests/parity/generate.py).
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/lr_schedule.h"
#include "gtest/gtest.h"
#include "tests/parity/figures.h"
#include "tests/parity/goldens.h"
#include "tests/parity/subject.h"
#include "worker/model/generation.h"
#include "worker/model/key_value_layout.h"
#include "worker/model/token_draw.h"

namespace roundhouse::parity {
namespace {

using worker::AlignedVector;
using worker::SequentialTrainer;

// One greedy step behind each sequence, with keys and values of those before.
class GreedySequences {
 public:
  GreedySequences(const Subject& subject, const SequentialTrainer& trainer)
      : subject_(subject),
        config_(subject.config()),
        trainer_(trainer),
        run_(*worker::GenerationRun::Create({.config = config_})) {}

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
      EXPECT_TRUE(run_->Logits(subject_.WeightsOf(trainer_, DType::kF32,
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
      ASSERT_TRUE(run_->ForwardLayer(layer, subject_.WeightsOf(
                                                trainer_, DType::kF32, layer))
                      .ok());
    }
  }

  const Subject& subject_;
  const ModelConfig& config_;
  const SequentialTrainer& trainer_;
  std::unique_ptr<worker::GenerationRun> run_;
  std::vector<AlignedVector<std::byte>> caches_;
  std::vector<std::vector<int32_t>> fresh_;  // not yet through the model
  std::vector<int64_t> cached_;
};

class GenerationParityTest : public testing::TestWithParam<Case> {};

TEST_P(GenerationParityTest, GreedyTokensFp32) {
  const Subject subject(GetParam());
  const Batches& batches = subject.batches();
  const Goldens generated(GoldensFolder() + "/" + GetParam().name +
                          "/generated.safetensors");
  const std::vector<int32_t> lengths = generated.Ints("lengths");
  const std::vector<int32_t> tokens = generated.Ints("tokens");
  const auto trainer = subject.MakeTrainer({});
  GreedySequences sequences(subject, *trainer);
  ASSERT_EQ(static_cast<int64_t>(lengths.size()), batches.rows());
  for (size_t row = 0; row < lengths.size(); ++row) {
    const auto begin = batches.tokens.begin() +
                       static_cast<std::ptrdiff_t>(row) * batches.row_tokens();
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

INSTANTIATE_TEST_SUITE_P(Families, GenerationParityTest,
                         testing::ValuesIn(kFamilies),
                         [](const auto& info) { return NameOf(info.param); });

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
