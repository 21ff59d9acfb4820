#include "base/reduction.h"

#include <cmath>
#include <map>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// The tree as docs/design/numerics.md defines it, written as "((0+1)+2)".
std::string TreeText(int64_t begin, int64_t end) {
  const int64_t size = end - begin;
  if (size == 1) return std::to_string(begin);
  int64_t left = 1;
  while (left * 2 < size) left *= 2;
  return "(" + TreeText(begin, begin + left) + "+" +
         TreeText(begin + left, end) + ")";
}

void Apply(const std::vector<TreeAdd>& adds,
           std::map<int, std::string>* values) {
  for (const TreeAdd& add : adds) {
    (*values)[add.into] =
        "(" + values->at(add.into) + "+" + values->at(add.from) + ")";
    values->erase(add.from);
  }
}

// Folds leaves [range) singly, as a device worker folds its groups.
std::string FoldLeaves(IndexRange range) {
  TreeFold fold;
  std::map<int, std::string> values;
  for (int64_t i = range.begin; i < range.end; ++i) {
    values[static_cast<int>(i)] = std::to_string(i);
    Apply(fold.Push(static_cast<int>(i)), &values);
  }
  Apply(fold.Finish(), &values);
  EXPECT_EQ(values.size(), 1u);
  return values.at(fold.root());
}

TEST(TreeFoldTest, LeavesAddAsTheRecursiveDefinition) {
  for (int64_t n = 1; n <= 70; ++n) {
    EXPECT_EQ(FoldLeaves({0, n}), TreeText(0, n)) << n;
  }
}

TEST(TreeFoldTest, HoldsFewValues) {
  TreeFold fold;
  std::map<int, std::string> values;
  for (int i = 0; i < 64; ++i) {
    values[i] = "x";
    Apply(fold.Push(i), &values);
    EXPECT_LE(values.size(), 7u);
  }
}

// Slots cover [0, a), [a, b), [b, n) of the groups: each sends its largest
// subtrees and the host folds them; the sum is the same for every a and b.
TEST(TreeFoldTest, EverySplitIntoSlotsAddsAlike) {
  for (int64_t n = 1; n <= 17; ++n) {
    for (int64_t a = 0; a <= n; ++a) {
      for (int64_t b = a; b <= n; ++b) {
        TreeFold fold;
        std::map<int, std::string> values;
        int next = 100;
        for (IndexRange slot : {IndexRange{0, a}, {a, b}, {b, n}}) {
          for (IndexRange node : LargestSubtrees(n, slot)) {
            values[next] = FoldLeaves(node);
            Apply(fold.Push(next, node.size()), &values);
            ++next;
          }
        }
        Apply(fold.Finish(), &values);
        ASSERT_EQ(values.at(fold.root()), TreeText(0, n))
            << n << " " << a << " " << b;
      }
    }
  }
}

TEST(TreeFoldDeathTest, RefusesAnIllegalOrder) {
  TreeFold fold;
  fold.Push(0, 1);
  EXPECT_DEATH(fold.Push(1, 2), "cannot follow");
  EXPECT_DEATH(fold.root(), "finished_");
}

TEST(LargestSubtreesTest, CoversExactlyAndIsMinimal) {
  EXPECT_TRUE(LargestSubtrees(8, {3, 3}).empty());
  EXPECT_EQ(LargestSubtrees(8, {0, 8}), (std::vector<IndexRange>{{0, 8}}));
  EXPECT_EQ(LargestSubtrees(8, {1, 8}),
            (std::vector<IndexRange>{{1, 2}, {2, 4}, {4, 8}}));
  EXPECT_EQ(LargestSubtrees(7, {4, 7}), (std::vector<IndexRange>{{4, 7}}));
  EXPECT_EQ(LargestSubtrees(6, {3, 6}),
            (std::vector<IndexRange>{{3, 4}, {4, 6}}));
}

TEST(RangesTest, RoundsAreFullButTheLast) {
  EXPECT_EQ(RoundRanges(8, 8), (std::vector<IndexRange>{{0, 8}}));
  EXPECT_EQ(RoundRanges(9, 4),
            (std::vector<IndexRange>{{0, 4}, {4, 8}, {8, 9}}));
}

TEST(RangesTest, GroupsAreAsEqualAsCanBe) {
  EXPECT_EQ(GroupRanges(8, 1), (std::vector<IndexRange>{{0, 8}}));
  EXPECT_EQ(GroupRanges(8, 3),
            (std::vector<IndexRange>{{0, 3}, {3, 6}, {6, 8}}));
  EXPECT_EQ(GroupRanges(2, 4), (std::vector<IndexRange>{{0, 1}, {1, 2}}));
  EXPECT_EQ(GroupRanges(7, 4),
            (std::vector<IndexRange>{{0, 2}, {2, 4}, {4, 6}, {6, 7}}));
}

TEST(RangesTest, SoAreRunsOfAsManyGroups) {
  for (int64_t micro_batches = 1; micro_batches <= 40; ++micro_batches) {
    for (int64_t limit = 1; limit <= 16; ++limit) {
      const std::vector<IndexRange> groups = GroupRanges(micro_batches, limit);
      const auto count = static_cast<int64_t>(groups.size());
      EXPECT_EQ(count, std::min(micro_batches, limit));
      EXPECT_EQ(groups.front().begin, 0);
      EXPECT_EQ(groups.back().end, micro_batches);
      for (int64_t run = 1; run <= count; ++run) {
        for (int64_t g = 0; g + run <= count; ++g) {
          const int64_t size = groups[g + run - 1].end - groups[g].begin;
          EXPECT_LT(std::abs(size * count - run * micro_batches), count)
              << micro_batches << " in " << count << ", " << run << " from "
              << g;
        }
      }
    }
  }
}

TEST(SumOfSquaresTest, AddsOneAfterTheOtherInDouble) {
  // Any other order, or fp32, loses some of the small addends.
  const std::vector<float> values = {1.0f, 3e-9f, 3e-9f, 1e-4f, 0x1p60f, 1.0f};
  double expected = 0;
  for (float value : values) expected += static_cast<double>(value) * value;
  EXPECT_EQ(ChunkSumOfSquares(values.data(), 6), expected);
  EXPECT_GT(ChunkSumOfSquares(values.data(), 4), 1.0);
  EXPECT_EQ(ChunkSumOfSquares(values.data(), 0), 0.0);
}

TEST(ClipFactorTest, AsTorchClips) {
  EXPECT_EQ(ClipFactor(0.5, 1.0), 1.0f);
  EXPECT_EQ(ClipFactor(4.0, 1.0), static_cast<float>(1.0 / (4.0 + 1e-6)));
  EXPECT_EQ(ClipFactor(1e9, 0.0), 1.0f);
  EXPECT_TRUE(std::isnan(ClipFactor(std::nan(""), 1.0)));
}

}  // namespace
}  // namespace roundhouse
