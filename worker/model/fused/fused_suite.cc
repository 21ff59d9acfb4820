#include "worker/model/fused/fused_suite.h"

#include <array>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "torch/csrc/autograd/autograd.h"
#include "worker/model/fused/composed.h"
#include "worker/model/fused/fused.h"
#include "worker/model/fused/host_fused_kernels.h"
#include "worker/model/fused/split_products.h"
#include "worker/model/on_stream.h"
#include "worker/model/prepare_library.h"

namespace roundhouse::worker {

struct FusedSuite::Bench {
  explicit Bench(std::unique_ptr<Device> opened)
      : device(std::move(opened)),
        stream(*device->NewStream()),
        on_stream(stream->native()) {
    at::manual_seed(11);
  }

  at::Tensor Random(at::IntArrayRef shape, at::ScalarType dtype) const {
    return at::randn(shape).to(TorchDevice(stream->native()), dtype);
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  OnStream on_stream;
  HostFusedKernels host_kernels;
};

FusedSuite::FusedSuite() = default;
FusedSuite::~FusedSuite() = default;

void FusedSuite::SetUp() {
  DeviceSuite::SetUp();
  if (IsSkipped() || HasFatalFailure()) return;
  bench_ = std::make_unique<Bench>(Open(uint64_t{1} << 30));
  const NativeStream stream = bench_->stream->native();
  ASSERT_EQ(PrepareLibrary(stream), absl::OkStatus());
  kernels_ = FusedKernelsOf(TorchDevice(stream));
  if (stream.cuda_device != NativeStream::kHost) {
    ASSERT_NE(kernels_, nullptr);
  } else {
    ASSERT_EQ(kernels_, nullptr) << "the host's workers use LibTorch's";
    kernels_ = &bench_->host_kernels;
  }
}

namespace {

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};
constexpr double kEpsilon = 1e-6;

using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Tensors&)>;

// Relative L2: what a few roundings are worth.
double ToleranceOf(at::ScalarType dtype) {
  return dtype == at::kFloat ? 1e-6 : dtype == at::kHalf ? 1e-3 : 8e-3;
}

double Distance(const at::Tensor& value, const at::Tensor& reference) {
  const at::Tensor wide = value.to(at::kCPU, at::kDouble);
  const at::Tensor right = reference.to(at::kCPU, at::kDouble);
  return ((wide - right).norm() / right.norm()).item<double>();
}

// The value, then the gradient of each input along a fixed direction.
Tensors ValueAndGradients(const Function& function, const Tensors& inputs,
                          const at::Tensor& direction) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().requires_grad_(true));
  }
  Tensors all = {function(leaves)};
  const auto gradients = torch::autograd::grad({all[0]}, leaves, {direction});
  for (size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_EQ(gradients[i].sizes(), inputs[i].sizes());
    EXPECT_EQ(gradients[i].scalar_type(), inputs[i].scalar_type());
    all.push_back(gradients[i]);
  }
  return all;
}

Tensors InDouble(const Tensors& tensors) {
  Tensors wide;
  for (const at::Tensor& tensor : tensors) {
    wide.push_back(tensor.to(at::kCPU, at::kDouble));
  }
  return wide;
}

// Against the same in fp64, and against itself.
void ExpectRight(const Function& fused, const Function& reference,
                 const Tensors& inputs, const at::Tensor& direction) {
  const Tensors found = ValueAndGradients(fused, inputs, direction);
  const Tensors right = ValueAndGradients(reference, InDouble(inputs),
                                          direction.to(at::kCPU, at::kDouble));
  const Tensors again = ValueAndGradients(fused, inputs, direction);
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string what =
        i == 0 ? "value" : "gradient of input " + std::to_string(i - 1);
    EXPECT_LT(Distance(found[i], right[i]),
              ToleranceOf(direction.scalar_type()))
        << what << ", " << direction.scalar_type() << ", " << inputs[0].sizes();
    EXPECT_TRUE(at::equal(found[i], again[i])) << what;
  }
}

// The share of elements with other bits; all of them within `relative`.
double ShareOfOthers(const at::Tensor& value, const at::Tensor& other,
                     double relative) {
  EXPECT_TRUE(at::allclose(value.to(at::kFloat), other.to(at::kFloat), relative,
                           /*atol=*/1e-7));
  return value.ne(other).to(at::kDouble).mean().item<double>();
}

at::Tensor NormReference(const Tensors& inputs) {
  const at::Tensor& x = inputs[0];
  return inputs[1] * x *
         at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + kEpsilon);
}

struct Tables {
  at::Tensor cos, sin;
};

TEST_P(FusedSuite, NormsAreThoseOfFp64) {
  const std::vector<std::vector<int64_t>> shapes = {
      {3, 128},  {70, 96},  {5, 7},       {130, 1536}, {2, 4096},
      {1, 4100}, {1, 1030}, {20'000, 16}, {64, 64},    {2, 5, 3, 128}};
  for (const at::ScalarType dtype : kTypes) {
    const Function fused = [&](const Tensors& inputs) {
      return FusedRmsNorm(*kernels_, inputs[0], inputs[1], kEpsilon);
    };
    for (const auto& shape : shapes) {
      const Tensors inputs = {3 * bench_->Random(shape, dtype),
                              bench_->Random({shape.back()}, dtype)};
      ExpectRight(fused, NormReference, inputs, bench_->Random(shape, dtype));
      const at::Tensor composed =
          ComposedRmsNorm(inputs[0], inputs[1], kEpsilon);
      const double others = ShareOfOthers(fused(inputs), composed, 2e-2);
      EXPECT_TRUE(dtype == at::kFloat || others < 0.02) << others;
    }
  }
}

TEST_P(FusedSuite, AFrozenWeightGetsNoGradient) {
  const at::Tensor x = bench_->Random({9, 64}, at::kBFloat16);
  const at::Tensor weight = bench_->Random({64}, at::kBFloat16);
  const at::Tensor direction = bench_->Random({9, 64}, at::kBFloat16);
  const Function frozen = [&](const Tensors& inputs) {
    return FusedRmsNorm(*kernels_, inputs[0], weight, kEpsilon);
  };
  const Function reference = [&](const Tensors& inputs) {
    return NormReference({inputs[0], weight.to(at::kCPU, at::kDouble)});
  };
  ExpectRight(frozen, reference, {x}, direction);
  EXPECT_FALSE(frozen({x}).requires_grad());
}

// [rows, heads, tokens, head_dim] in the layouts that callers have.
Tensors Layouts(const at::Tensor& tokens_first) {
  const at::Tensor projected = tokens_first.transpose(1, 2);
  // Behind an element, so that it does not begin at a pack.
  const at::Tensor shifted =
      at::cat({projected.new_zeros({1}), projected.reshape({-1})})
          .slice(0, 1)
          .view(projected.sizes());
  return {projected, projected.contiguous(), shifted,
          projected.transpose(2, 3).contiguous().transpose(2, 3)};
}

TEST_P(FusedSuite, RotaryHasTheBitsOfOperators) {
  for (const at::ScalarType dtype : kTypes) {
    for (const int64_t head_dim : {128, 64, 16, 6}) {
      for (const bool by_row : {false, true}) {
        const std::vector<int64_t> shape = {2, 5, 3, head_dim};
        const std::vector<int64_t> table =
            by_row ? std::vector{shape[0], int64_t{1}, shape[1], head_dim}
                   : std::vector{shape[1], head_dim};
        const at::Tensor angles = bench_->Random(table, at::kFloat);
        const Tables tables{angles.cos().to(dtype), angles.sin().to(dtype)};
        const Function fused = [&](const Tensors& inputs) {
          return FusedRope(*kernels_, inputs[0], tables.cos, tables.sin);
        };
        const Function composed = [&](const Tensors& inputs) {
          return ComposedRope(inputs[0], tables.cos, tables.sin);
        };
        const Function reference = [&](const Tensors& inputs) {
          return ComposedRope(inputs[0], tables.cos.to(at::kCPU, at::kDouble),
                              tables.sin.to(at::kCPU, at::kDouble));
        };
        const Tensors layouts = Layouts(bench_->Random(shape, dtype));
        for (const at::Tensor& direction :
             Layouts(bench_->Random(shape, dtype))) {
          for (const at::Tensor& x : layouts) {
            ExpectRight(fused, reference, {x}, direction);
            if (dtype == at::kFloat) continue;  // a GPU contracts
            const Tensors found = ValueAndGradients(fused, {x}, direction);
            const Tensors bits = ValueAndGradients(composed, {x}, direction);
            EXPECT_TRUE(at::equal(found[0], bits[0])) << dtype << head_dim;
            EXPECT_TRUE(at::equal(found[1], bits[1])) << dtype << head_dim;
          }
        }
      }
    }
  }
}

TEST_P(FusedSuite, RotaryTurnsBackAsManyTokensAsItTurned) {
  const at::Tensor x =
      bench_->Random({1, 7, 4, 32}, at::kFloat).transpose(1, 2);
  const at::Tensor angles = bench_->Random({7, 16}, at::kFloat).repeat({1, 2});
  const at::Tensor cos = angles.cos(), sin = angles.sin();
  const Tensors turned = ValueAndGradients(
      [&](const Tensors& inputs) {
        return FusedRope(*kernels_, inputs[0], cos, sin);
      },
      {x}, FusedRope(*kernels_, x, cos, sin));
  EXPECT_LT(Distance(turned[1], x), 1e-6);
  EXPECT_TRUE(turned[0].transpose(1, 2).is_contiguous());
  EXPECT_TRUE(turned[1].transpose(1, 2).is_contiguous());
}

TEST_P(FusedSuite, SwiGluIsThatOfFp64AndOfOperators) {
  const std::vector<std::vector<int64_t>> shapes = {
      {1, 8}, {3, 5}, {40, 96}, {64, 1000}};
  for (const at::ScalarType dtype : kTypes) {
    const Function fused = [&](const Tensors& inputs) {
      return FusedSwiGlu(*kernels_, inputs[0], inputs[1]);
    };
    const Function composed = [](const Tensors& inputs) {
      return ComposedSwiGlu(inputs[0], inputs[1]);
    };
    for (const auto& shape : shapes) {
      const Tensors inputs = {4 * bench_->Random(shape, dtype),
                              bench_->Random(shape, dtype)};
      const at::Tensor direction = bench_->Random(shape, dtype);
      ExpectRight(fused, composed, inputs, direction);
      if (dtype == at::kFloat) continue;
      const Tensors found = ValueAndGradients(fused, inputs, direction);
      const Tensors others = ValueAndGradients(composed, inputs, direction);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_LE(ShareOfOthers(found[i], others[i], 2e-2), 0.01) << dtype;
      }
    }
  }
}

// Where LibTorch's result is not a number or infinite, so is this.
TEST_P(FusedSuite, WhatOverflowsIsNotFinite) {
  const at::Tensor large =
      at::tensor({0.0f, 1.0f, -70.0f, 300.0f, -6e4f, 6e4f, -3.0f, INFINITY,
                  -INFINITY, NAN})
          .to(bench_->Random({1}, at::kHalf).device(), at::kHalf);
  const at::Tensor other = at::full_like(large, 500);
  const auto finite = [](const at::Tensor& x) { return at::isfinite(x); };
  const Function fused = [&](const Tensors& inputs) {
    return FusedSwiGlu(*kernels_, inputs[0], inputs[1]);
  };
  const Function composed = [](const Tensors& inputs) {
    return ComposedSwiGlu(inputs[0], inputs[1]);
  };
  const Tensors found = ValueAndGradients(fused, {large, other}, other);
  const Tensors right = ValueAndGradients(composed, {large, other}, other);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(at::equal(finite(found[i]), finite(right[i]))) << i;
  }
  const at::Tensor norm = FusedRmsNorm(*kernels_, large, other, kEpsilon);
  EXPECT_FALSE(finite(norm).any().item<bool>());
  at::Tensor infinite = bench_->Random({2, 3}, at::kFloat);
  infinite.fill_(std::numeric_limits<float>::infinity());
  const at::Tensor x = bench_->Random({4, 2}, at::kBFloat16);
  EXPECT_FALSE(finite(WideProduct(*kernels_, x, infinite)).any().item<bool>());
}

// An fp32 product's error, from the same in fp64, and that of bf16's rounding.
TEST_P(FusedSuite, SplitProductsAreThoseOfFp64) {
  constexpr double kFp32 = 1e-6, kBf16 = 3e-3;
  for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{
           {40, 96, 16}, {7, 33, 4}, {300, 1024, 64}, {1, 1, 1}}) {
    const at::Tensor x = bench_->Random({m, k}, at::kBFloat16);
    const at::Tensor small = bench_->Random({k, n}, at::kFloat);
    const Tensors wide = InDouble({x, small});
    const at::Tensor right = 1.5 * wide[0].mm(wide[1]);
    const at::Tensor found = WideProduct(*kernels_, x, small, 1.5);
    EXPECT_EQ(found.scalar_type(), at::kFloat);
    EXPECT_LT(Distance(found, right), kFp32) << m;
    const at::Tensor turned = small.t().contiguous().t();
    EXPECT_LT(Distance(WideProduct(*kernels_, x, turned, 1.5), right), kFp32);
    const at::Tensor across = x.t().contiguous().t();
    EXPECT_LT(Distance(WideProduct(*kernels_, across, small, 1.5), right),
              kFp32);
    EXPECT_TRUE(
        at::equal(found, WideProduct(*kernels_, x, small, 1.5)));  // again

    const at::Tensor left = bench_->Random({m, n}, at::kFloat);
    const at::Tensor narrow = bench_->Random({n, k}, at::kFloat);
    const at::Tensor product =
        left.to(at::kCPU, at::kDouble).mm(narrow.to(at::kCPU, at::kDouble));
    EXPECT_LT(Distance(NarrowProduct(*kernels_, left, narrow), product), kBf16);
    at::Tensor base = bench_->Random({m, k}, at::kBFloat16);
    const at::Tensor sum = base.to(at::kCPU, at::kDouble) + 0.5 * product;
    AddNarrowProduct(*kernels_, left, narrow, 0.5, base);
    EXPECT_LT(Distance(base, sum), kBf16) << m;
    // On the host rounded once; a GPU's library may round the product before it
    // is added.
    const at::Tensor terms = left.abs()
                                 .to(at::kCPU, at::kDouble)
                                 .mm(narrow.abs().to(at::kCPU, at::kDouble));
    const at::Tensor most =
        (product.abs() * 0.5 + sum.abs()) * 0x1p-8 + terms * 0x1p-14;
    EXPECT_TRUE((InDouble({base})[0] - sum).abs().le(most).all().item<bool>())
        << m;
  }
}

TEST_P(FusedSuite, NothingIsNothing) {
  for (const at::ScalarType dtype : kTypes) {
    const at::Tensor none = bench_->Random({0, 16}, dtype);
    const at::Tensor weight = bench_->Random({16}, dtype);
    EXPECT_EQ(FusedRmsNorm(*kernels_, none, weight, kEpsilon).numel(), 0);
    EXPECT_EQ(FusedSwiGlu(*kernels_, none, none).numel(), 0);
  }
  const at::Tensor none = bench_->Random({0, 16}, at::kBFloat16);
  const at::Tensor low = bench_->Random({0, 4}, at::kFloat);
  const at::Tensor small = bench_->Random({16, 4}, at::kFloat);
  EXPECT_EQ(WideProduct(*kernels_, none, small).sizes(), low.sizes());
  EXPECT_TRUE(WideProduct(*kernels_, none.t(), low).eq(0).all().item<bool>());
  EXPECT_EQ(NarrowProduct(*kernels_, low, small.t()).sizes(), none.sizes());
  at::Tensor base = none.clone();
  AddNarrowProduct(*kernels_, low, small.t(), 1, base);
  EXPECT_EQ(base.sizes(), none.sizes());
}

TEST_P(FusedSuite, WhatDoesNotGoTogetherIsRefused) {
  const at::Tensor x = bench_->Random({2, 3, 4, 16}, at::kHalf);
  const at::Tensor table = bench_->Random({4, 16}, at::kHalf);
  const auto fails = [](const std::function<void()>& call,
                        const std::string& why) {
    try {
      call();
      ADD_FAILURE() << "not refused: " << why;
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos)
          << error.what();
    }
  };
  fails([&] { FusedRmsNorm(*kernels_, x, table, kEpsilon); },
        "a norm over 16 by weights of [4, 16]");
  fails([&] { FusedRmsNorm(*kernels_, x, table[0].to(at::kFloat), kEpsilon); },
        "a norm's weight is Float");
  fails([&] { FusedRope(*kernels_, x, table.slice(0, 1), table); },
        "a table of cosines of [3, 16] for [2, 3, 4, 16]");
  fails([&] { FusedRope(*kernels_, x, table, table.to(at::kFloat)); },
        "a table of sines is Float");
  fails(
      [&] {
        FusedRope(*kernels_, x, table.repeat({2, 1}).view({2, 1, 4, 16}),
                  table);
      },
      "cosines of [2, 1, 4, 16] beside sines of [4, 16]");
  fails([&] { FusedRope(*kernels_, x.slice(3, 1), table, table); },
        "rotary embedding of [2, 3, 4, 15]");
  fails([&] { FusedSwiGlu(*kernels_, x, x[0]); },
        "a gate of [2, 3, 4, 16] for [3, 4, 16]");
  const at::Tensor doubles = x.to(at::kDouble);
  fails([&] { FusedSwiGlu(*kernels_, doubles, doubles); }, "no kernel for");
}

}  // namespace
}  // namespace roundhouse::worker
