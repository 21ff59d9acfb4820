#include "tests/fakes/fake_model.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/model/parameters.h"
#include "gtest/gtest.h"
#include "tests/fakes/test_clock.h"

namespace roundhouse::fakes {
namespace {

using worker::Keep;

constexpr int64_t kMs = 1'000'000;
constexpr uint64_t kStep = 3;

class CountingSink : public worker::GradientSink {
 public:
  void OnGradient(int64_t layer, ParamRole, const float*,
                  int64_t element_count) override {
    gradients.push_back({layer, element_count});
  }
  std::vector<std::pair<int64_t, int64_t>> gradients;
};

class FakeModelTest : public testing::Test {
 protected:
  FakeModelTest() {
    config_.hidden_size = 8;
    config_.layer_count = 2;
    config_.head_count = 2;
    config_.kv_head_count = 1;
    config_.head_dim = 4;
    config_.intermediate_size = 16;
    config_.vocab_size = 10;
  }

  std::unique_ptr<worker::StageRun> NewRun(Keep keep, int64_t rank = 0) {
    worker::StageRunOptions options;
    options.config = config_;
    options.adapter = {.rank = rank, .alpha = 1, .targets = 1};
    options.rows = 2;
    options.row_tokens = 6;
    options.keep = keep;
    options.step = kStep;
    return *FakeStageRuns(device_, costs_)(options);
  }
  std::vector<int64_t> Spent() { return std::exchange(spent_, {}); }
  std::vector<std::pair<int64_t, int64_t>> GradientsOf(const UnitSpec& unit,
                                                       int64_t layer) const {
    std::vector<std::pair<int64_t, int64_t>> gradients;
    for (const ParameterSpec& one : unit.parameters) {
      gradients.push_back({layer, one.element_count});
    }
    return gradients;
  }

  ModelConfig config_;
  // Milliseconds below; every pass of every layer takes another time.
  const std::vector<LayerCost> costs_ = {{1 * kMs, 2 * kMs, 3 * kMs},
                                         {4 * kMs, 5 * kMs, 6 * kMs},
                                         {7 * kMs, 0, 8 * kMs}};
  std::vector<int64_t> spent_;
  TestClock clock_;
  FakeDevice device_{
      {.observe =
           [this](Engine, Resource::Interval interval) {
             spent_.push_back((interval.end_ns - interval.begin_ns) / kMs);
           }},
      clock_};
  CountingSink sink_;
};

using Times = std::vector<int64_t>;

TEST_F(FakeModelTest, AForwardSlotsTimes) {
  const auto run = NewRun(Keep::kNothing);
  EXPECT_TRUE(run->SetInput(nullptr).ok());
  EXPECT_TRUE(run->ForwardLayer(0, {}).ok());
  EXPECT_TRUE(run->ForwardLayer(1, {}).ok());
  EXPECT_TRUE(run->CopyOutput(nullptr).ok());
  EXPECT_EQ(Spent(), (Times{1, 4}));
}

TEST_F(FakeModelTest, ABackwardSlotRecomputes) {
  const auto run = NewRun(Keep::kStage);
  EXPECT_TRUE(run->ForwardLayer(0, {}).ok());
  EXPECT_TRUE(run->ForwardLayer(1, {}).ok());
  EXPECT_TRUE(run->BackwardFrom(nullptr).ok());
  EXPECT_TRUE(run->BackwardLayer(1, &sink_).ok());
  EXPECT_TRUE(run->BackwardLayer(0, &sink_).ok());
  EXPECT_TRUE(run->CopyInputGradient(nullptr).ok());
  EXPECT_EQ(Spent(), (Times{2, 5, 6, 3}));
}

TEST_F(FakeModelTest, LayerByLayerItRecomputesTwice) {
  const auto run = NewRun(Keep::kLayer);
  EXPECT_TRUE(run->ForwardLayer(1, {}).ok());
  EXPECT_TRUE(run->BackwardLayer(1, &sink_).ok());
  EXPECT_EQ(Spent(), (Times{5, 11}));
}

TEST_F(FakeModelTest, TheHeadsTimesAndItsLoss) {
  const auto run = NewRun(Keep::kStage);
  auto result =
      *run->Head({}, nullptr, worker::HeadMode::kLossAndGradient, 1, &sink_);
  EXPECT_EQ(result.target_tokens, 12);
  EXPECT_DOUBLE_EQ(result.loss_sum, 12 * 1.25);
  EXPECT_TRUE(result.finite);
  EXPECT_EQ(sink_.gradients,
            (std::vector<std::pair<int64_t, int64_t>>{{2, 8}, {2, 80}}));
  result = *run->Head({}, nullptr, worker::HeadMode::kLossOnly, 1, nullptr);
  EXPECT_DOUBLE_EQ(result.loss_sum, 12 * 1.25);
  EXPECT_EQ(Spent(), (Times{15, 7}));
}

TEST_F(FakeModelTest, NamesEveryGradientOfALayer) {
  EXPECT_TRUE(NewRun(Keep::kStage)->BackwardLayer(1, &sink_).ok());
  EXPECT_EQ(sink_.gradients, GradientsOf(ModelUnit(config_, 2), 1));
}

TEST_F(FakeModelTest, OfAFrozenModelThoseOfItsAdapters) {
  const auto run = NewRun(Keep::kStage, /*rank=*/3);
  const AdapterConfig adapter = {.rank = 3, .alpha = 1, .targets = 1};
  EXPECT_TRUE(
      run->Head({}, nullptr, worker::HeadMode::kLossAndGradient, 1, &sink_)
          .ok());
  EXPECT_TRUE(run->BackwardLayer(0, &sink_).ok());
  EXPECT_EQ(sink_.gradients, GradientsOf(AdapterUnit(config_, adapter, 0), 0));
}

TEST_F(FakeModelTest, RefusesAModelOfOtherLayers) {
  worker::StageRunOptions options;
  options.config = config_;
  options.config.layer_count = 5;
  const auto run = FakeStageRuns(device_, costs_)(options);
  EXPECT_EQ(run.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(run.status().message())
                .find("of 2 layers and the head, the model has 5 layers"),
            std::string::npos);
  EXPECT_EQ(FakeGenerations(device_, costs_)({.config = options.config})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(FakeModelTest, ASamplesPass) {
  const auto run = *FakeGenerations(device_, costs_)({.config = config_});
  EXPECT_TRUE(run->SetInput(nullptr, {}).ok());
  EXPECT_TRUE(run->ForwardLayer(0, {}).ok());
  EXPECT_TRUE(run->ForwardLayer(1, {}).ok());
  std::vector<float> logits(2 * 10, 5.0f);
  EXPECT_TRUE(run->Logits({}, 0, 2, logits.data()).ok());
  EXPECT_EQ(logits, std::vector<float>(20, 0.0f));
  EXPECT_EQ(Spent(), (Times{1, 4, 7}));
}

}  // namespace
}  // namespace roundhouse::fakes
