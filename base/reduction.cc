#include "base/reduction.h"

#include <algorithm>

#include "base/log.h"

namespace roundhouse {
namespace {

int64_t LargestPowerOfTwoBelow(int64_t size) {
  int64_t power = 1;
  while (power * 2 < size) power *= 2;
  return power;
}

void CollectSubtrees(IndexRange node, IndexRange covered,
                     std::vector<IndexRange>* subtrees) {
  if (node.end <= covered.begin || covered.end <= node.begin) return;
  if (covered.begin <= node.begin && node.end <= covered.end) {
    subtrees->push_back(node);
    return;
  }
  const int64_t middle = node.begin + LargestPowerOfTwoBelow(node.size());
  CollectSubtrees({node.begin, middle}, covered, subtrees);
  CollectSubtrees({middle, node.end}, covered, subtrees);
}

}  // namespace

std::vector<IndexRange> RoundRanges(int64_t micro_batches,
                                    int64_t round_limit) {
  ROUNDHOUSE_CHECK(micro_batches >= 1 && round_limit >= 1);
  std::vector<IndexRange> rounds;
  for (int64_t begin = 0; begin < micro_batches; begin += round_limit) {
    rounds.push_back({begin, std::min(begin + round_limit, micro_batches)});
  }
  return rounds;
}

std::vector<IndexRange> GroupRanges(int64_t micro_batches,
                                    int64_t group_limit) {
  ROUNDHOUSE_CHECK(micro_batches >= 1 && group_limit >= 1);
  const int64_t count = std::min(micro_batches, group_limit);
  const auto begin = [&](int64_t group) {
    return (group * micro_batches + count - 1) / count;
  };
  std::vector<IndexRange> groups;
  for (int64_t g = 0; g < count; ++g) {
    groups.push_back({begin(g), begin(g + 1)});
  }
  return groups;
}

std::vector<IndexRange> LargestSubtrees(int64_t leaves, IndexRange covered) {
  ROUNDHOUSE_CHECK(0 <= covered.begin && covered.begin <= covered.end &&
                   covered.end <= leaves);
  std::vector<IndexRange> subtrees;
  if (covered.size() > 0) CollectSubtrees({0, leaves}, covered, &subtrees);
  return subtrees;
}

double ChunkSumOfSquares(const float* values, int64_t count) {
  ROUNDHOUSE_CHECK(0 <= count && count <= kReduceChunkElements);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i];
    sum += value * value;
  }
  return sum;
}

float ClipFactor(double norm, double max_norm) {
  if (max_norm == 0) return 1.0f;
  // Written so that a NaN norm stays NaN.
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1.0 ? 1.0f : static_cast<float>(factor);
}

TreeAdd TreeFold::MergeTop() {
  const Node right = stack_.back();
  stack_.pop_back();
  Node& left = stack_.back();
  left.leaves += right.leaves;
  return {left.value, right.value};
}

std::vector<TreeAdd> TreeFold::Push(int value, int64_t leaves) {
  ROUNDHOUSE_CHECK(leaves >= 1 && !finished_);
  ROUNDHOUSE_CHECK(stack_.empty() || leaves <= stack_.back().leaves)
      << "a node of " << leaves << " leaves cannot follow one of "
      << stack_.back().leaves;
  stack_.push_back({value, leaves});
  std::vector<TreeAdd> adds;
  while (stack_.size() >= 2 &&
         stack_[stack_.size() - 2].leaves == stack_.back().leaves) {
    adds.push_back(MergeTop());
  }
  return adds;
}

std::vector<TreeAdd> TreeFold::Finish() {
  ROUNDHOUSE_CHECK(!stack_.empty());
  finished_ = true;
  std::vector<TreeAdd> adds;
  while (stack_.size() >= 2) adds.push_back(MergeTop());
  return adds;
}

int TreeFold::root() const {
  ROUNDHOUSE_CHECK(finished_ && stack_.size() == 1);
  return stack_[0].value;
}

}  // namespace roundhouse
