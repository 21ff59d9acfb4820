#include "worker/model/lora.h"

#include <string>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Parallel.h"
#include "gtest/gtest.h"
#include "torch/csrc/autograd/autograd.h"
#include "worker/model/fused/host_fused_kernels.h"
#include "worker/model/on_stream.h"

namespace roundhouse::worker {
namespace {

constexpr int64_t kRows = 3, kRowTokens = 7, kIn = 33, kOut = 20, kRank = 4;

at::Tensor Random(at::IntArrayRef shape, at::ScalarType dtype, uint64_t seed) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::kFloat).to(dtype);
}

enum class By { kOperators, kSplitProducts };

struct Case {
  at::ScalarType dtype;
  double dropout;
  By by = By::kOperators;
};

class LoraTest : public testing::TestWithParam<Case> {
 protected:
  LoraTest() {
    weights_[ParamRole::kKLoraA] =
        Random({kRank, kIn}, at::kFloat, 3).requires_grad_(true);
    weights_[ParamRole::kKLoraB] =
        Random({kOut, kRank}, at::kFloat, 4).requires_grad_(true);
    if (splits()) SetHostFusedKernels(&kernels_);
  }
  ~LoraTest() override { SetHostFusedKernels(nullptr); }

  static bool splits() { return GetParam().by == By::kSplitProducts; }

  at::Tensor Add(ParamRole matrix) const {
    return AddAdapter(context_, weights_, matrix, x_, base_);
  }
  // The result may overwrite this base.
  at::Tensor AddInPlace() const {
    return AddAdapter(context_, weights_, ParamRole::kK, x_, base_ * 1);
  }
  // The mask's factors, straight from its definition's class.
  at::Tensor Factors() const {
    at::Tensor factors = at::ones({kRows * kRowTokens, kIn}, at::kFloat);
    const DropoutMask mask(GetParam().dropout, adapter_.key, context_.layer,
                           ParamRole::kK);
    for (int64_t i = 0; i < kRows * kRowTokens; ++i) {
      float* const token = factors.data_ptr<float>() + i * kIn;
      mask.Apply(i / kRowTokens, i % kRowTokens, token, token, kIn);
    }
    return factors;
  }

  const AdapterContext adapter_ = {.config = {.rank = kRank,
                                              .alpha = 10,
                                              .dropout = GetParam().dropout,
                                              .targets = 0b0000010},
                                   .dropout = true,
                                   .key = {5, 6, 7},
                                   .row_tokens = kRowTokens};
  const ModelConfig config_;
  const Packing packing_;
  const LayerContext context_ = {.config = config_,
                                 .layer = 2,
                                 .rope = {},
                                 .packing = packing_,
                                 .adapter = &adapter_};
  const at::Tensor x_ = Random({kRows * kRowTokens, kIn}, GetParam().dtype, 1)
                            .requires_grad_(true);
  const at::Tensor base_ =
      Random({kRows * kRowTokens, kOut}, GetParam().dtype, 2)
          .requires_grad_(true);
  const HostFusedKernels kernels_;
  LayerTensors weights_;
};

// PEFT's forward, in LibTorch's own operators.
TEST_P(LoraTest, IsTheFormulaAndItsGradients) {
  const at::Tensor& a = weights_[ParamRole::kKLoraA];
  const at::Tensor& b = weights_[ParamRole::kKLoraB];
  const at::Tensor low = at::linear(x_.to(at::kFloat) * Factors(), a);
  const at::Tensor expected =
      (base_ + at::linear(low, b) * 2.5).to(GetParam().dtype);
  const at::Tensor found = AddInPlace();
  EXPECT_EQ(found.scalar_type(), GetParam().dtype);
  if (splits()) {
    EXPECT_TRUE(at::allclose(found, expected, 1e-2, 1e-3));
    EXPECT_LT(found.ne(expected).to(at::kFloat).mean().item<float>(), 0.02);
  } else {
    EXPECT_TRUE(at::equal(found, expected));
  }

  const at::Tensor gradient =
      Random({kRows * kRowTokens, kOut}, GetParam().dtype, 9);
  const std::vector<at::Tensor> leaves = {base_, x_, a, b};
  const auto want = torch::autograd::grad({expected}, leaves, {gradient});
  const auto got = torch::autograd::grad({found}, leaves, {gradient});
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_EQ(got[i].scalar_type(), leaves[i].scalar_type()) << i;
    const bool half = leaves[i].scalar_type() == at::kBFloat16;
    EXPECT_TRUE(at::allclose(got[i].to(at::kFloat), want[i].to(at::kFloat),
                             half ? 1e-2 : 1e-5, 1e-5))
        << i;
  }
}

TEST_P(LoraTest, AnotherMatrixIsLeftAlone) {
  EXPECT_TRUE(Add(ParamRole::kV).is_same(base_));
}

// With unit matrices the output is the masked input itself.
TEST(LoraMaskTest, IsTheSameOnAnyNumberOfThreads) {
  constexpr int64_t kManyRows = 30, kFeatures = 50;
  const AdapterContext adapter = {.config = {.rank = kFeatures,
                                             .alpha = kFeatures,
                                             .dropout = 0.5,
                                             .targets = 1},
                                  .dropout = true,
                                  .key = {5, 6, 7},
                                  .row_tokens = kRowTokens};
  const ModelConfig config;
  const Packing packing;
  const LayerContext context = {.config = config,
                                .layer = 2,
                                .rope = {},
                                .packing = packing,
                                .adapter = &adapter};
  LayerTensors weights;
  weights[ParamRole::kQLoraA] = at::eye(kFeatures);
  weights[ParamRole::kQLoraB] = at::eye(kFeatures);
  const at::Tensor x = at::ones({kManyRows * kRowTokens, kFeatures});
  const DropoutMask mask(0.5, adapter.key, 2, ParamRole::kQ);
  at::Tensor expected = x.clone();
  for (int64_t i = 0; i < x.size(0); ++i) {
    float* const token = expected.data_ptr<float>() + i * kFeatures;
    mask.Apply(i / kRowTokens, i % kRowTokens, token, token, kFeatures);
  }
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 4}) {
    at::set_num_threads(threads);
    EXPECT_TRUE(at::equal(
        AddAdapter(context, weights, ParamRole::kQ, x, at::zeros_like(x)),
        expected))
        << threads;
  }
  at::set_num_threads(before);
}

INSTANTIATE_TEST_SUITE_P(
    All, LoraTest,
    testing::Values(Case{at::kFloat, 0}, Case{at::kFloat, 0.25},
                    Case{at::kBFloat16, 0}, Case{at::kBFloat16, 0.25},
                    Case{at::kBFloat16, 0, By::kSplitProducts},
                    Case{at::kBFloat16, 0.25, By::kSplitProducts}),
    [](const testing::TestParamInfo<Case>& info) {
      return std::string(c10::toString(info.param.dtype)) +
             (info.param.dropout > 0 ? "Dropped" : "") +
             (info.param.by == By::kOperators ? "" : "Split");
    });

}  // namespace
}  // namespace roundhouse::worker
