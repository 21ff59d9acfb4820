#include "worker/model/mixture.h"

#include <cmath>
#include <limits>
#include <vector>

#include "ATen/ATen.h"
#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "torch/csrc/autograd/autograd.h"
#include "worker/model/stage_run.h"
#include "worker/model/test_model.h"

namespace roundhouse::worker {
namespace {

using Picks = std::vector<ExpertPick>;

TEST(PickExpertsTest, LargestFirstAndOfEqualOnesTheLowerNumber) {
  const at::Tensor logits = at::tensor({1.0f, 3.0f, 2.0f, 3.0f,  //
                                        5.0f, 5.0f, 5.0f, 5.0f,  //
                                        0.0f, 1.0f, 1.0f, 1.0f})
                                .view({3, 4});
  EXPECT_EQ(PickExperts(logits, 2), (Picks{1, 3, 0, 1, 1, 2}));
  EXPECT_EQ(PickExperts(logits.to(at::kBFloat16), 1), (Picks{1, 0, 1}));
  EXPECT_EQ(PickExperts(logits, 4),
            (Picks{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}));
  // LibTorch's own top-k takes any of many equal ones.
  const at::Tensor equal = at::zeros({5, 128});
  for (const ExpertPick pick : PickExperts(equal, 8)) EXPECT_LT(pick, 8);
}

TEST(PickExpertsTest, NoNumberIsLargest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor logits = at::tensor({1.0f, nan, 2.0f, nan}).view({1, 4});
  EXPECT_EQ(PickExperts(logits, 2), (Picks{1, 3}));
}

TEST(ExpertRowsTest, ByExpertThenByToken) {
  const auto rows = MakeExpertRows({0, 2, 2, 3, 0, 3}, 2, 5, at::kCPU);
  EXPECT_EQ(rows->expert_ends, (std::vector<int64_t>{2, 2, 4, 6, 6}));
  const auto is = [](const at::Tensor& tensor, std::vector<int64_t> values) {
    return tensor.reshape(-1).equal(at::tensor(values, at::kLong));
  };
  EXPECT_TRUE(is(rows->tokens, {0, 2, 0, 1, 1, 2}));
  EXPECT_TRUE(is(rows->order, {0, 4, 1, 2, 3, 5}));
  EXPECT_TRUE(is(rows->places, {0, 2, 3, 4, 1, 5}));
}

// One layer of a model, with its weights as leaves.
struct Layer {
  explicit Layer(bool renormalize, at::ScalarType dtype = at::kFloat) {
    config = TinyFamilyConfig(Architecture::kQwen3Moe, 1);
    config.mixture.layers.set(0);
    config.mixture.renormalize = renormalize;
    const TestModel model(config, DType::kF32, 3);
    for (const ParameterSpec& spec : model.units[1].parameters) {
      const auto role = static_cast<int>(spec.role);
      weights.weight[role] =
          at::from_blob(const_cast<void*>(model.Weights(0).weight[role]),
                        spec.shape, at::kFloat)
              .to(dtype, /*non_blocking=*/false, /*copy=*/true)
              .requires_grad_(true);
    }
  }
  const at::Tensor& Of(ParamRole role) const { return weights[role]; }
  at::Tensor Run(const at::Tensor& x,
                 c10::intrusive_ptr<ExpertRows>* rows = nullptr) const {
    return Mixture({.config = config,
                    .layer = 0,
                    .rope = {},
                    .packing = packing,
                    .experts = rows},
                   weights, x);
  }

  ModelConfig config;
  LayerTensors weights;
  Packing packing;
};

// Token by token and expert by expert, by LibTorch's own autograd.
at::Tensor Plain(const Layer& layer, const at::Tensor& x) {
  const MixtureConfig& mixture = layer.config.mixture;
  const at::Tensor shares = x.mm(layer.Of(ParamRole::kRouter).t()).softmax(-1);
  std::vector<at::Tensor> outputs;
  for (int64_t token = 0; token < x.size(0); ++token) {
    const auto [values, experts] =
        shares[token].topk(mixture.experts_per_token);
    at::Tensor output = at::zeros({x.size(1)});
    for (int64_t i = 0; i < mixture.experts_per_token; ++i) {
      const int64_t expert = experts[i].item<int64_t>();
      const auto both =
          layer.Of(ParamRole::kExpertsGateUp)[expert].matmul(x[token]).chunk(2);
      const at::Tensor share =
          mixture.renormalize ? values[i] / values.sum() : values[i];
      output =
          output + share * layer.Of(ParamRole::kExpertsDown)[expert].matmul(
                               at::silu(both[0]) * both[1]);
    }
    outputs.push_back(output);
  }
  return at::stack(outputs);
}

TEST(MixtureTest, IsThePlainSumOfEachTokensExperts) {
  const c10::AutoGradMode with_grad(true);
  for (const bool renormalize : {false, true}) {
    SCOPED_TRACE(renormalize);
    const Layer layer(renormalize);
    at::manual_seed(5);
    const at::Tensor x =
        at::randn({23, layer.config.hidden_size}).requires_grad_(true);
    const at::Tensor ours = layer.Run(x), theirs = Plain(layer, x);
    EXPECT_TRUE(ours.allclose(theirs, 1e-5, 1e-5));
    const at::Tensor gradient = at::randn_like(ours);
    const std::vector<at::Tensor> leaves = {x, layer.Of(ParamRole::kRouter),
                                            layer.Of(ParamRole::kExpertsGateUp),
                                            layer.Of(ParamRole::kExpertsDown)};
    const auto of_ours = torch::autograd::grad({ours}, leaves, {gradient});
    const auto of_theirs = torch::autograd::grad({theirs}, leaves, {gradient});
    for (size_t i = 0; i < leaves.size(); ++i) {
      EXPECT_TRUE(of_ours[i].allclose(of_theirs[i], 1e-4, 1e-5)) << i;
    }
  }
}

TEST(MixtureTest, AnExpertWithoutTokensHasGradientsOfZero) {
  const c10::AutoGradMode with_grad(true);
  const Layer layer(true);
  const at::Tensor x = at::ones({3, layer.config.hidden_size});
  auto rows = MakeExpertRows({0, 1, 0, 3, 1, 3}, 2, 5, at::kCPU);
  const auto gradients = torch::autograd::grad(
      {layer.Run(x, &rows).sum()},
      {layer.Of(ParamRole::kExpertsGateUp), layer.Of(ParamRole::kExpertsDown)});
  for (const at::Tensor& gradient : gradients) {
    for (int64_t expert = 0; expert < 5; ++expert) {
      const bool hit = expert != 2 && expert != 4;
      EXPECT_EQ(gradient[expert].abs().sum().item<float>() > 0, hit) << expert;
    }
  }
}

TEST(MixtureTest, GivenPicksGoBeforeTheRoutersAndItsOwnAreLeft) {
  const c10::NoGradGuard no_grad;
  const Layer layer(true);
  at::manual_seed(6);
  const at::Tensor x = at::randn({4, layer.config.hidden_size});
  c10::intrusive_ptr<ExpertRows> rows;
  const at::Tensor routed = layer.Run(x, &rows);
  ASSERT_NE(rows, nullptr);
  EXPECT_TRUE(layer.Run(x, &rows).equal(routed));
  Picks others = rows->picks;
  for (size_t token = 0; token < 4; ++token) {
    others[2 * token] = 0;
    others[2 * token + 1] = 4;
  }
  auto given = MakeExpertRows(others, 2, 5, at::kCPU);
  EXPECT_FALSE(layer.Run(x, &given).equal(routed));
}

// A forward slot computes without a graph, a fused one with it.
TEST(MixtureTest, BitsDoNotDependOnTheGraph) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const Layer layer(false, dtype);
    at::manual_seed(7);
    const at::Tensor x = at::randn({33, layer.config.hidden_size}).to(dtype);
    at::Tensor with, without;
    {
      const c10::AutoGradMode with_grad(true);
      with = layer.Run(x).detach();
    }
    {
      const c10::NoGradGuard no_grad;
      without = layer.Run(x);
    }
    EXPECT_TRUE(with.equal(without)) << dtype;
  }
}

TEST(StageRunPicksTest, WhatIsNotRightIsRefused) {
  const ModelConfig config = TinyFamilyConfig(Architecture::kQwen3Moe, 2);
  const TestModel model(config, DType::kF32, 1);
  const TestBatch batch = MakeBatch(config, 1, 3, 2);
  const auto input = model.Embed(batch.tokens);
  auto run = *StageRun::Create(
      {.config = config, .rows = batch.rows, .row_tokens = batch.row_tokens});
  Picks picks = {0, 1, 0, 4, 3, 4};
  Picks found(picks.size());
  const auto code = [](const absl::Status& status) { return status.code(); };
  const auto early = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(code(run->SetPicks(picks.data())), early);
  ASSERT_TRUE(run->SetInput(input.data()).ok());
  // Layer 0 is dense.
  ASSERT_TRUE(run->SetPicks(picks.data()).ok());
  EXPECT_EQ(code(run->ForwardLayer(0, model.Weights(0))), early);
  ASSERT_TRUE(run->SetInput(input.data()).ok());
  ASSERT_TRUE(run->ForwardLayer(0, model.Weights(0)).ok());
  EXPECT_EQ(code(run->CopyPicks(found.data())), early);
  ASSERT_TRUE(run->SetPicks(picks.data()).ok());
  ASSERT_TRUE(run->ForwardLayer(1, model.Weights(1)).ok());
  ASSERT_TRUE(run->CopyPicks(found.data()).ok());
  EXPECT_EQ(found, picks);
  for (const ExpertPick wrong : {5, -1}) {
    picks[2] = wrong;
    const absl::Status status = run->SetPicks(picks.data());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "pick of expert " + std::to_string(wrong) + " of 5");
  }
}

}  // namespace
}  // namespace roundhouse::worker
