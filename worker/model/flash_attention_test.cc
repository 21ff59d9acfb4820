// No kernel of it runs on a CPU: one that does what FlashAttention-2 documents
// (varlen sequences, causal, a window of keys to the left, grouped queries) is
// registered here in its place, in fp64.  So what is tested is what is asked of
// it, and that LibTorch's autograd takes it backward.
#include "worker/model/flash_attention.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "torch/csrc/autograd/autograd.h"
#include "torch/library.h"
#include "worker/model/attention.h"

namespace roundhouse::worker {
namespace {

int forward_calls = 0, backward_calls = 0;

struct Range {
  int64_t begin, end;
};

// What one kernel is called with, over tokens of all rows.
struct Call {
  at::Tensor q, k, v;  // [tokens, heads, d] fp64
  std::vector<Range> sequences;
  int64_t left = -1, right = -1;  // keys seen beside the query's own; -1: all

  Call(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
       const std::optional<at::Tensor>& starts, int64_t longest, bool causal,
       std::optional<c10::SymInt> left_in, std::optional<c10::SymInt> right_in)
      : q(Flat(q_in)), k(Flat(k_in)), v(Flat(v_in)) {
    if (left_in.has_value()) left = left_in->expect_int();
    if (right_in.has_value()) right = right_in->expect_int();
    if (causal) right = 0;
    const bool packed = starts.has_value() && starts->defined();
    TORCH_CHECK(q_in.dim() == (packed ? 3 : 4), q_in.sizes());
    TORCH_CHECK(q_in.stride(-1) == 1 && k_in.stride(-1) == 1 &&
                v_in.stride(-1) == 1);
    for (int64_t i = 0; packed && i + 1 < starts->size(0); ++i) {
      TORCH_CHECK(starts->scalar_type() == at::kInt);
      sequences.push_back(
          {(*starts)[i].item<int32_t>(), (*starts)[i + 1].item<int32_t>()});
      TORCH_CHECK(sequences.back().end - sequences.back().begin <= longest);
    }
    for (int64_t row = 0; !packed && row < q_in.size(0); ++row) {
      TORCH_CHECK(q_in.size(1) == longest, q_in.sizes());
      sequences.push_back({row * longest, (row + 1) * longest});
    }
  }

  static at::Tensor Flat(const at::Tensor& x) {
    return x.reshape({-1, x.size(-2), x.size(-1)}).to(at::kDouble);
  }
  // [heads, tokens, d] of one sequence, each query head with its keys.
  at::Tensor Heads(const at::Tensor& x, const Range& range) const {
    return x.slice(0, range.begin, range.end)
        .transpose(0, 1)
        .repeat_interleave(q.size(1) / x.size(1), 0);
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(q.size(2))); }
  // [heads, tokens, tokens]
  at::Tensor Weights(const Range& range) const {
    const int64_t n = range.end - range.begin;
    at::Tensor seen = at::ones({n, n}, at::kBool);
    if (right >= 0) seen = seen.tril(right);
    if (left >= 0) seen = seen.triu(-left);
    return (Heads(q, range).matmul(Heads(k, range).transpose(1, 2)) * scale())
        .masked_fill(seen.logical_not(),
                     -std::numeric_limits<double>::infinity())
        .softmax(-1);
  }
};

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> Forward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const std::optional<at::Tensor>& starts,
    const std::optional<at::Tensor>& key_starts, c10::SymInt longest,
    c10::SymInt longest_keys, double dropout, bool causal, bool debug_mask,
    std::optional<double> scale, std::optional<c10::SymInt> left,
    std::optional<c10::SymInt> right, const std::optional<at::Tensor>& used,
    const std::optional<at::Tensor>& alibi) {
  ++forward_calls;
  TORCH_CHECK(dropout == 0 && !debug_mask && !scale && !used && !alibi);
  TORCH_CHECK(longest == longest_keys);
  TORCH_CHECK(starts.has_value() == key_starts.has_value());
  const Call call(q, k, v, starts, longest.expect_int(), causal, left, right);
  std::vector<at::Tensor> mixed;
  for (const Range& range : call.sequences) {
    mixed.push_back(
        call.Weights(range).matmul(call.Heads(call.v, range)).transpose(0, 1));
  }
  const at::Tensor none = at::empty({0});
  return {at::cat(mixed).reshape(q.sizes()).to(q.scalar_type()), none, none,
          none, none};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> Backward(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
    const at::Tensor& v, const at::Tensor&, const at::Tensor&,
    const at::Tensor& starts, const at::Tensor&, c10::SymInt longest,
    c10::SymInt, double, bool causal, const at::Tensor&, const at::Tensor&,
    std::optional<double>, std::optional<c10::SymInt> left,
    std::optional<c10::SymInt> right) {
  ++backward_calls;
  const Call call(q, k, v, starts, longest.expect_int(), causal, left, right);
  const at::Tensor flat = Call::Flat(grad);
  std::vector<at::Tensor> dq, dk, dv;
  // Sums over the query heads of a key head.
  const auto grouped = [&](const at::Tensor& x) {
    return x.reshape({call.k.size(1), -1, x.size(1), x.size(2)})
        .sum(1)
        .transpose(0, 1);
  };
  for (const Range& range : call.sequences) {
    const at::Tensor weights = call.Weights(range);
    const at::Tensor out = call.Heads(flat, range);
    const at::Tensor d_weights =
        out.matmul(call.Heads(call.v, range).transpose(1, 2));
    const at::Tensor d_scores =
        weights * (d_weights - (d_weights * weights).sum(-1, true)) *
        call.scale();
    dq.push_back(d_scores.matmul(call.Heads(call.k, range)).transpose(0, 1));
    dk.push_back(
        grouped(d_scores.transpose(1, 2).matmul(call.Heads(call.q, range))));
    dv.push_back(grouped(weights.transpose(1, 2).matmul(out)));
  }
  const auto like = [](const std::vector<at::Tensor>& parts,
                       const at::Tensor& x) {
    return at::cat(parts).reshape(x.sizes()).to(x.scalar_type());
  };
  return {like(dq, q), like(dk, k), like(dv, v)};
}

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("_flash_attention_forward", TORCH_FN(Forward));
  library.impl("_flash_attention_backward", TORCH_FN(Backward));
}

// [rows, heads, row_tokens, d] as the projections leave it, tokens first.
at::Tensor Random(int64_t heads, at::ScalarType dtype) {
  return at::randn({2, 12, heads, 16})
      .to(dtype)
      .transpose(1, 2)
      .detach()
      .requires_grad_(true);
}

double RelativeDifference(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).norm() /
          b.to(at::kDouble).norm())
      .item<double>();
}

struct Case {
  std::vector<int64_t> sequence_tokens;
  int64_t window = 0;
  at::ScalarType dtype = at::kFloat;
};

class FlashAttentionTest : public testing::TestWithParam<Case> {};

// Values and gradients as sequence by sequence through SDPA.
TEST_P(FlashAttentionTest, IsCausalAttention) {
  at::manual_seed(3);
  const Case& param = GetParam();
  const std::vector<at::Tensor> inputs = {
      Random(4, param.dtype), Random(2, param.dtype), Random(2, param.dtype)};
  Packing packing = {param.sequence_tokens};
  if (packing.packs()) packing.starts = SequenceStarts(packing);
  const at::Tensor weight = at::randn({24, 64}).to(param.dtype);
  const auto run = [&](auto attention) {
    std::vector<at::Tensor> results = {
        attention(inputs[0], inputs[1], inputs[2], packing, param.window)};
    const auto gradients =
        torch::autograd::grad({results[0]}, inputs, {weight});
    results.insert(results.end(), gradients.begin(), gradients.end());
    return results;
  };
  forward_calls = backward_calls = 0;
  const auto ours = run(FlashAttention);
  EXPECT_EQ(forward_calls, 1);
  EXPECT_EQ(backward_calls, 1);
  const auto reference = run(CausalAttention);
  EXPECT_EQ(forward_calls, 1);
  const double tolerance = param.dtype == at::kFloat ? 1e-5 : 2e-2;
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].sizes(), reference[i].sizes());
    EXPECT_LT(RelativeDifference(ours[i], reference[i]), tolerance) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, FlashAttentionTest,
    testing::Values(Case{{3, 8, 1, 12}}, Case{{3, 8, 1, 12}, 4},
                    Case{{1, 11, 12}, 2}, Case{{}, 5}, Case{{}, 12},
                    Case{{7, 5, 2, 10}, 3, at::kBFloat16}));

TEST(FlashAttentionChoiceTest, NoCpuHasIt) {
  const at::Tensor q = Random(4, at::kBFloat16);
  EXPECT_FALSE(HasFlashAttention(q, {}));
}

TEST(FlashAttentionChoiceTest, PackedRowsNeedTheirStarts) {
  const at::Tensor q = Random(4, at::kFloat);
  EXPECT_THROW(FlashAttention(q, q, q, {{12, 12}}, 0), c10::Error);
}

}  // namespace
}  // namespace roundhouse::worker
