// The order in which a job's gradients add: rounds, groups, and the fixed tree.
//
// A step of n micro-batches is R rounds of at most M.  A round's micro-batches
// form contiguous groups as equal as can be; inside a group gradients add in
// micro-batch order, groups add pairwise up a tree, rounds add in order.  The
// first addend is copied, never added to zero.  All of it is index logic: the
// daemon, the device and host workers and the sequential reference share it, so
// that the order belongs to the job and never to the plan.
//
// The tree over n leaves: a node of one leaf is that leaf; a larger node splits
// at the largest power of two below its size, left child first.
//
// Thread-compatible; pure.
#ifndef ROUNDHOUSE_BASE_REDUCTION_H_
#define ROUNDHOUSE_BASE_REDUCTION_H_

#include <cstdint>
#include <vector>

namespace roundhouse {

// Norm partials, optimizer calls and journalled host work cover this many
// elements at a time, counted from each parameter's first element; the last
// chunk of a parameter is shorter.
inline constexpr int64_t kReduceChunkElements = 32768;

// [begin, end) of micro-batches, groups or leaves.
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

// The rounds of a step of `micro_batches`, in order: all of `round_limit` (M)
// but the last, which has the rest.  Ranges are of the step's micro-batches.
// REQUIRES: micro_batches >= 1, round_limit >= 1.
std::vector<IndexRange> RoundRanges(int64_t micro_batches, int64_t round_limit);

// The groups of a round of `micro_batches`: min(group_limit, micro_batches) of
// them, contiguous, group g from ceil(g * micro_batches / groups) on.  So they
// are as equal as can be, and so are runs of as many of them: 12 in 8 groups
// are 2, 1, 2, 1, ..., and four parts of two groups have 3 each.  Ranges are of
// the round's micro-batches, from 0.
// REQUIRES: micro_batches >= 1, group_limit >= 1.
std::vector<IndexRange> GroupRanges(int64_t micro_batches, int64_t group_limit);

// The largest nodes of the tree over `leaves` that lie inside `covered`,
// ascending; together they are `covered`.  A slot that covers these groups
// sends one sum for each.
// REQUIRES: 0 <= covered.begin <= covered.end <= leaves.
std::vector<IndexRange> LargestSubtrees(int64_t leaves, IndexRange covered);

// The sum of squares of one chunk: its elements' squares, each in double, added
// one after the other in ascending order to a sum that begins with 0.
//
// A unit's is its chunks' added in order (parameters in order, each parameter's
// chunks in order) from 0, a model's its units' likewise; the norm is the
// square root.
// REQUIRES: 0 <= count <= kReduceChunkElements.
double ChunkSumOfSquares(const float* values, int64_t count);

// What gradients are multiplied with before the update, as
// torch.nn.utils.clip_grad_norm_ computes it but in double:
// min(1, max_norm / (norm + 1e-6)), then cast.  At 1 nothing is multiplied.
// A max_norm of 0 means no clipping.
float ClipFactor(double norm, double max_norm);

// One addition: value[into] += value[from]; `into` lies left of `from`.  Where
// one operand is absent (an embedding row without addends) the other is the
// sum.
struct TreeAdd {
  int into = 0;
  int from = 0;
  bool operator==(const TreeAdd&) const = default;
};

// Adds values up the tree as they come, with at most 1 + log2(leaves) of them
// held at a time.  A subtree adds like a tree of its own size, so a device
// worker folds the groups of one subtree with it, and the host worker the
// subtrees of a round:
//
//   TreeFold fold;
//   for (each node in order) for (TreeAdd add : fold.Push(buffer, leaves)) ...
//   for (TreeAdd add : fold.Finish()) ...
//   // the sum is in fold.root()
class TreeFold {
 public:
  // The next node, left to right, whose sum the caller keeps in value `value`
  // (any number the caller likes).  `leaves` is its leaf count; more than one
  // only for nodes of the whole tree, as LargestSubtrees gives them.  Returns
  // the additions to make now, in order; each `from` is free afterwards.
  // REQUIRES: leaves >= 1, Finish not yet called.
  std::vector<TreeAdd> Push(int value, int64_t leaves = 1);

  // The additions left once every node was pushed.
  // REQUIRES: at least one Push.
  std::vector<TreeAdd> Finish();

  // Where the sum lies after Finish.
  int root() const;

 private:
  struct Node {
    int value = 0;
    int64_t leaves = 0;
  };

  TreeAdd MergeTop();

  std::vector<Node> stack_;  // left to right, sizes descending
  bool finished_ = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_REDUCTION_H_
