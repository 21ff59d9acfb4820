#include "worker/model/decoder_layer.h"

#include <string>

#include "gtest/gtest.h"
#include "torch/csrc/autograd/autograd.h"
#include "worker/model/test_model.h"

namespace roundhouse::worker {
namespace {

constexpr int64_t kRows = 2, kRowTokens = 12;

class DecoderLayerTest : public testing::TestWithParam<Architecture> {
 protected:
  DecoderLayerTest()
      : model_(TinyFamilyConfig(GetParam(), 2), DType::kF32, 5),
        rope_(MakeRopeTables(model_.config, kRowTokens, at::kFloat)) {
    at::manual_seed(3);
    x_ = at::randn({kRows, kRowTokens, model_.config.hidden_size});
    direction_ = at::randn(x_.sizes());
  }

  LayerTensors Weights() {
    const LayerWeights weights = model_.Weights(kLayer);
    LayerTensors tensors;
    for (const ParameterSpec& parameter : Parameters()) {
      const auto role = static_cast<int>(parameter.role);
      tensors.weight[role] = at::from_blob(
          const_cast<void*>(weights.weight[role]), parameter.shape, at::kFloat);
    }
    return tensors;
  }

  const std::vector<ParameterSpec>& Parameters() const {
    return model_.units[1 + kLayer].parameters;
  }

  at::Tensor Run(const LayerTensors& weights, const at::Tensor& x,
                 const RopeTables& rope, const Packing& packing = {}) const {
    return DecoderLayer({.config = model_.config,
                         .layer = kLayer,
                         .rope = rope,
                         .packing = packing},
                        weights, x);
  }

  // The value of the layer's output along a fixed direction.
  at::Tensor Value(const LayerTensors& weights, const at::Tensor& x) const {
    return (Run(weights, x, rope_) * direction_).sum(at::kDouble);
  }

  static constexpr int64_t kLayer = 1;
  TestModel model_;
  const RopeTables rope_;
  at::Tensor x_, direction_;  // [rows, row_tokens, hidden]
};

// Each weight moves along its own gradient by a small step; the value must
// change by step * |gradient|^2.
TEST_P(DecoderLayerTest, GradientsMatchFiniteDifferences) {
  LayerTensors weights = Weights();
  std::vector<at::Tensor> leaves;
  for (const ParameterSpec& parameter : Parameters()) {
    leaves.push_back(weights[parameter.role].requires_grad_(true));
  }
  const auto gradients = torch::autograd::grad({Value(weights, x_)}, leaves);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const std::string& name = Parameters()[i].name;
    const double squared =
        gradients[i].square().sum(at::kDouble).item<double>();
    ASSERT_GT(squared, 0) << name;
    const double step = 1e-2 / std::sqrt(squared);
    const auto value_at = [&](double distance) {
      LayerTensors moved = Weights();
      moved[Parameters()[i].role] =
          leaves[i].detach() + distance * gradients[i];
      return Value(moved, x_).item<double>();
    };
    const double slope = (value_at(step) - value_at(-step)) / (2 * step);
    EXPECT_NEAR(slope / squared, 1.0, 0.02) << name;
  }
}

TEST_P(DecoderLayerTest, FrozenWeightsGetNoGradientAndChangeNone) {
  const LayerTensors frozen = Weights();
  LayerTensors trained = Weights();
  std::vector<at::Tensor> leaves = {x_.detach().requires_grad_(true)};
  const auto alone = torch::autograd::grad({Value(frozen, leaves[0])}, leaves);
  for (const ParameterSpec& parameter : Parameters()) {
    leaves.push_back(trained[parameter.role].requires_grad_(true));
  }
  const auto all = torch::autograd::grad({Value(trained, leaves[0])}, leaves);
  EXPECT_TRUE(alone[0].equal(all[0]));
}

TEST_P(DecoderLayerTest, PackedSequencesEqualSeparateOnes) {
  const std::vector<int32_t> positions = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6,
                                          0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const Packing packing =
      ReadPacking(positions.data(), kRows, kRowTokens).value();
  const RopeTables rope =
      RopeAt(rope_, at::tensor(positions, at::kInt).view({kRows, kRowTokens}));
  const LayerTensors weights = Weights();
  const at::Tensor packed =
      Run(weights, x_, rope, packing).view({-1, x_.size(2)});
  const at::Tensor flat = x_.view({-1, x_.size(2)});
  int64_t begin = 0;
  for (int64_t tokens : packing.sequence_tokens) {
    const at::Tensor alone = Run(
        weights, flat.slice(0, begin, begin + tokens).unsqueeze(0).contiguous(),
        MakeRopeTables(model_.config, tokens, at::kFloat));
    const at::Tensor difference =
        packed.slice(0, begin, begin + tokens) - alone[0];
    EXPECT_LT(difference.abs().max().item<float>(), 1e-5) << begin;
    begin += tokens;
  }
  // Without boundaries the second sequence would see the first.
  const at::Tensor whole = Run(weights, x_, rope_);
  EXPECT_GT((whole - packed.view(x_.sizes())).abs().max().item<float>(), 1e-2);
}

TEST_P(DecoderLayerTest, TokensBeyondTheWindowAreNotSeen) {
  const int64_t window = model_.config.sliding_window;
  const LayerTensors weights = Weights();
  at::Tensor other = x_.clone();
  other.select(1, 0).add_(1);
  const at::Tensor change =
      (Run(weights, other, rope_) - Run(weights, x_, rope_)).abs().amax({0, 2});
  for (int64_t token = 0; token < kRowTokens; ++token) {
    const bool sees = window == 0 || token < window;
    EXPECT_EQ(change[token].item<float>() > 0, sees) << token;
  }
}

TEST(DecoderLayerWindowTest, LowerLayersOfAFamilySeeEverything) {
  const TestModel model(TinyFamilyConfig(Architecture::kQwen2, 2), DType::kF32,
                        5);
  ASSERT_EQ(model.config.sliding_layers, LayersFrom(1, 2));
  LayerTensors weights;
  for (const ParameterSpec& parameter : model.units[1].parameters) {
    const auto role = static_cast<int>(parameter.role);
    weights.weight[role] =
        at::from_blob(const_cast<void*>(model.Weights(0).weight[role]),
                      parameter.shape, at::kFloat);
  }
  const RopeTables rope = MakeRopeTables(model.config, kRowTokens, at::kFloat);
  const Packing packing;
  const auto last_token = [&](int64_t layer, const at::Tensor& x) {
    return DecoderLayer({.config = model.config,
                         .layer = layer,
                         .rope = rope,
                         .packing = packing},
                        weights, x)[0][kRowTokens - 1];
  };
  const at::Tensor x = at::ones({1, kRowTokens, model.config.hidden_size});
  at::Tensor other = x.clone();
  other[0][0].mul_(at::arange(0, model.config.hidden_size));
  EXPECT_FALSE(last_token(0, x).equal(last_token(0, other)));
  EXPECT_TRUE(last_token(1, x).equal(last_token(1, other)));
}

INSTANTIATE_TEST_SUITE_P(Families, DecoderLayerTest,
                         testing::Values(Architecture::kLlama,
                                         Architecture::kMistral,
                                         Architecture::kQwen2,
                                         Architecture::kQwen3));

}  // namespace
}  // namespace roundhouse::worker
