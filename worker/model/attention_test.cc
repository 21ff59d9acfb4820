#include "worker/model/attention.h"

#include <cmath>
#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "torch/csrc/autograd/autograd.h"

namespace roundhouse::worker {
namespace {

// A token's heads are multiples of 64 bytes also in bf16.
constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 16;

struct Inputs {
  at::Tensor q, k, v;  // [rows, heads, row_tokens, head_dim]
};

// Laid out as the projections leave them, tokens before heads.
Inputs Random(int64_t rows, int64_t row_tokens, at::ScalarType dtype) {
  at::manual_seed(7);
  const auto make = [&](int64_t heads) {
    return at::randn({rows, row_tokens, heads, kHeadDim})
        .to(dtype)
        .transpose(1, 2);
  };
  return {make(kHeads), make(kKvHeads), make(kKvHeads)};
}

// One sequence of one row as a micro-batch of its own.
Inputs Slice(const Inputs& all, int64_t row, int64_t begin, int64_t end) {
  const auto slice = [&](const at::Tensor& x) {
    return x.slice(0, row, row + 1)
        .transpose(1, 2)
        .slice(1, begin, end)
        .contiguous()
        .transpose(1, 2);
  };
  return {slice(all.q), slice(all.k), slice(all.v)};
}

at::Tensor Attend(const Inputs& x, const Packing& packing = {},
                  int64_t window = 0) {
  return CausalAttention(x.q, x.k, x.v, packing, window);
}

// Softmax over exactly the keys that a query may see, in fp64.
at::Tensor Reference(const Inputs& x, int64_t window) {
  const int64_t tokens = x.q.size(2), group = kHeads / kKvHeads;
  const at::Tensor k = x.k.to(at::kDouble).repeat_interleave(group, 1);
  const at::Tensor v = x.v.to(at::kDouble).repeat_interleave(group, 1);
  const at::Tensor seen =
      at::ones({tokens, tokens}, at::kBool).tril().triu(1 - window);
  const at::Tensor scores =
      x.q.to(at::kDouble).matmul(k.transpose(2, 3)) / std::sqrt(kHeadDim);
  const at::Tensor weights =
      scores
          .masked_fill(seen.logical_not(),
                       -std::numeric_limits<double>::infinity())
          .softmax(-1);
  return weights.matmul(v).transpose(1, 2).reshape(
      {x.q.size(0) * tokens, kHeads * kHeadDim});
}

double LargestDifference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

TEST(AttentionTest, AWindowCountsTheTokenItself) {
  for (int64_t window : {1, 2, 5, 11, 12, 13}) {
    const Inputs x = Random(2, 12, at::kFloat);
    EXPECT_LT(LargestDifference(Attend(x, {}, window), Reference(x, window)),
              1e-5)
        << window;
  }
  const Inputs x = Random(1, 3, at::kFloat);
  const at::Tensor values = x.v.repeat_interleave(2, 1).transpose(1, 2).reshape(
      {3, kHeads * kHeadDim});
  EXPECT_LT(LargestDifference(Attend(x, {}, 1), values), 1e-6);
}

// 256 queries a block, or as many as the window.
TEST(AttentionTest, WindowsOverSeveralBlocks) {
  const Inputs x = Random(1, 700, at::kFloat);
  for (int64_t window : {1, 3, 255, 256, 257, 300, 699}) {
    EXPECT_LT(LargestDifference(Attend(x, {}, window), Reference(x, window)),
              1e-5)
        << window;
  }
}

TEST(AttentionTest, AWindowThatHidesNothingChangesNoBit) {
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Inputs x = Random(2, 12, dtype);
    EXPECT_TRUE(Attend(x, {}, 12).equal(Attend(x)));
    EXPECT_FALSE(Attend(x, {}, 11).equal(Attend(x)));
  }
}

TEST(AttentionTest, APackedSequenceHasTheBitsOfOneAlone) {
  const Packing packing = {{3, 8, 1, 12}};
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (int64_t window : {0, 4}) {
      const Inputs x = Random(2, 12, dtype);
      const at::Tensor packed = Attend(x, packing, window);
      const auto alone = [&](int64_t row, int64_t begin, int64_t end) {
        return Attend(Slice(x, row, begin, end), {}, window);
      };
      EXPECT_TRUE(packed.equal(at::cat({alone(0, 0, 3), alone(0, 3, 11),
                                        alone(0, 11, 12), alone(1, 0, 12)})))
          << dtype << " " << window;
    }
  }
}

TEST(AttentionTest, GradientsStayInsideTheirSequence) {
  Inputs x = Random(2, 12, at::kFloat);
  for (at::Tensor* input : {&x.q, &x.k, &x.v}) {
    *input = input->detach().requires_grad_(true);
  }
  const at::Tensor output = Attend(x, {{5, 7, 12}}, 4);
  // From row 0's second sequence only.
  const auto gradients = torch::autograd::grad(
      {output.slice(0, 5, 12).square().sum()}, {x.q, x.k, x.v});
  for (const at::Tensor& gradient : gradients) {
    EXPECT_EQ(gradient[0].slice(1, 0, 5).abs().max().item<float>(), 0);
    EXPECT_EQ(gradient[1].abs().max().item<float>(), 0);
    EXPECT_GT(gradient[0].slice(1, 5, 12).abs().max().item<float>(), 0);
  }
}

// Caches of sequences of at most `capacity` tokens; what is not written shows.
KeyValueCache MakeCache(size_t sequences, int64_t capacity,
                        at::ScalarType dtype) {
  KeyValueCache cache;
  for (size_t i = 0; i < sequences; ++i) {
    const auto memory = [&] {
      return at::full({capacity, kKvHeads, kHeadDim}, std::nan(""),
                      at::TensorOptions().dtype(dtype));
    };
    cache.sequences.push_back({.keys = memory(), .values = memory()});
  }
  return cache;
}

TEST(CachedAttentionTest, WithoutCachedTokensItIsPackedAttention) {
  const std::vector<int64_t> tokens = {3, 8, 1, 12};
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (int64_t window : {0, 4}) {
      const Inputs x = Random(1, 24, dtype);
      KeyValueCache cache = MakeCache(tokens.size(), 12, dtype);
      for (size_t i = 0; i < tokens.size(); ++i) {
        cache.sequences[i].new_tokens = tokens[i];
      }
      EXPECT_TRUE(CachedAttention(x.q, x.k, x.v, cache, window)
                      .equal(Attend(x, {tokens}, window)))
          << dtype << " " << window;
    }
  }
}

// Two sequences that grow by pieces of different lengths, cut differently.
TEST(CachedAttentionTest, PiecesSeeTheTokensBeforeThem) {
  const int64_t ends[2][6] = {{0, 6, 7, 12, 13, 20}, {0, 1, 4, 5, 17, 18}};
  for (int64_t window : {0, 1, 2, 5, 9, 30}) {
    const Inputs x = Random(2, 20, at::kFloat);
    const at::Tensor expected =
        Reference(x, window == 0 ? 20 : window).view({2, 20, -1});
    KeyValueCache cache = MakeCache(2, 20, at::kFloat);
    for (size_t piece = 0; piece < 5; ++piece) {
      std::vector<at::Tensor> q, k, v, seen;
      for (size_t s = 0; s < 2; ++s) {
        const int64_t begin = ends[s][piece], end = ends[s][piece + 1];
        const Inputs part = Slice(x, static_cast<int64_t>(s), begin, end);
        q.push_back(part.q);
        k.push_back(part.k);
        v.push_back(part.v);
        seen.push_back(expected[static_cast<int64_t>(s)].slice(0, begin, end));
        cache.sequences[s].cached_tokens = begin;
        cache.sequences[s].new_tokens = end - begin;
      }
      const at::Tensor mixed = CachedAttention(at::cat(q, 2), at::cat(k, 2),
                                               at::cat(v, 2), cache, window);
      EXPECT_LT(LargestDifference(mixed, at::cat(seen)), 1e-5)
          << "window " << window << ", piece " << piece;
    }
  }
}

TEST(PackingTest, ReadsSequences) {
  const int32_t positions[] = {0, 1, 0, 0, 1, 2, 0, 1, 2, 3, 4, 5};
  const auto packing = ReadPacking(positions, 2, 6);
  ASSERT_TRUE(packing.ok()) << packing.status();
  EXPECT_EQ(packing->sequence_tokens, (std::vector<int64_t>{2, 1, 3, 6}));
}

TEST(PackingTest, RowsOfOneSequenceAreNotPacked) {
  const int32_t positions[] = {0, 1, 2, 0, 1, 2};
  const auto packing = ReadPacking(positions, 2, 3);
  ASSERT_TRUE(packing.ok()) << packing.status();
  EXPECT_TRUE(packing->sequence_tokens.empty());
}

TEST(PackingTest, RefusesWhatIsNoPacking) {
  const auto expect = [](std::vector<int32_t> positions, const char* text) {
    const absl::Status status = ReadPacking(positions.data(), 2, 3).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(text), std::string::npos) << status;
  };
  expect({0, 1, 2, 3, 4, 5}, "row 1, token 0: position 3 begins a row");
  expect({0, 2, 0, 0, 1, 2}, "row 0, token 1: position 2 follows 0");
  expect({0, 1, 2, 0, 1, 1}, "row 1, token 2: position 1 follows 1");
  expect({0, -1, 0, 0, 1, 2}, "row 0, token 1: position -1 follows 0");
}

// A GPU's kernels that know no shared heads are given each head's own.
TEST(AttentionTest, KeysForEachHeadAreThoseItShares) {
  const Inputs x = Random(2, 9, at::kFloat);
  const at::Tensor k = ForEachHead(x.k, kHeads);
  EXPECT_TRUE(at::equal(k, x.k.repeat_interleave(kHeads / kKvHeads, 1)));
  const Inputs own = {x.q, k, ForEachHead(x.v, kHeads)};
  EXPECT_TRUE(at::allclose(Attend(own), Attend(x), 1e-5, 1e-6));
}

}  // namespace
}  // namespace roundhouse::worker
