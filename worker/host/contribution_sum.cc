#include "worker/host/contribution_sum.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/convert.h"
#include "base/reduction.h"
#include "base/status.h"

namespace roundhouse::worker {
namespace {

absl::Status CheckCoverage(const std::vector<wire::HostContribution>& sorted,
                           uint32_t total_groups) {
  uint64_t next = 0;
  for (const wire::HostContribution& c : sorted) {
    const IndexRange range = {c.first_group,
                              int64_t{c.first_group} + c.group_count};
    if (c.first_group != next || c.group_count < 1 ||
        range.end > total_groups ||
        LargestSubtrees(total_groups, range).size() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("contribution of groups [", range.begin, ", ", range.end,
                       "): the next is to be a subtree of ", total_groups,
                       " groups that begins with ", next));
    }
    next = range.end;
  }
  if (!sorted.empty() && next != total_groups) {
    return absl::InvalidArgumentError(absl::StrCat(
        "contributions cover ", next, " of ", total_groups, " groups"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ContributionSum> ContributionSum::Make(const wire::Arena& arena,
                                                      const JobView& job,
                                                      const wire::HostOp& op,
                                                      int threads) {
  ContributionSum sum;
  if (op.contributions.empty() && op.micro_batches.empty()) return sum;
  if (op.total_groups < 1 || op.total_groups > wire::kMaxArray) {
    return absl::InvalidArgumentError(
        absl::StrCat("total_groups is ", op.total_groups));
  }
  if (op.contributions.empty()) return sum;
  const uint64_t elements = job.unit(op.unit).element_count;
  if (op.contributions.front().elements > 0) {
    RETURN_IF_ERROR(sum.TakeSlices(arena, op, elements));
    sum.folds_.assign(
        threads,
        Folds(1, std::vector<float>(std::min(elements, wire::kChunkElements))));
    return sum;
  }
  std::vector<wire::HostContribution> sorted = op.contributions;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) {
                     return a.first_group < b.first_group;
                   });
  RETURN_IF_ERROR(CheckCoverage(sorted, op.total_groups));
  sum.dtype_ = op.contribution_dtype;
  const uint64_t bytes = elements * DTypeBytes(sum.dtype_);
  std::vector<int64_t> leaves;
  for (const wire::HostContribution& c : sorted) {
    if (c.buffer.bytes < bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "contribution of group ", c.first_group, ": ", c.buffer.bytes,
          " bytes for ", elements, " ", DTypeName(sum.dtype_), " elements"));
    }
    sum.contributions_.push_back(arena.At<std::byte>(c.buffer.offset, bytes));
    leaves.push_back(c.group_count);
  }
  sum.program_ = TreeProgram::Make(leaves);
  sum.folds_.assign(
      threads, Folds(sum.program_.depth, std::vector<float>(std::min(
                                             elements, wire::kChunkElements))));
  return sum;
}

absl::Status ContributionSum::TakeSlices(const wire::Arena& arena,
                                         const wire::HostOp& op,
                                         uint64_t elements) {
  if (op.contribution_dtype != DType::kF32) {
    return absl::InvalidArgumentError(absl::StrCat(
        "slices are fp32, not ", DTypeName(op.contribution_dtype)));
  }
  uint64_t next = 0;
  for (const wire::HostContribution& c : op.contributions) {
    if (c.first_group != 0 || c.group_count != op.total_groups ||
        c.first_element != next || c.elements < 1 ||
        c.elements > elements - next) {
      return absl::InvalidArgumentError(absl::StrCat(
          "slice of ", c.elements, " elements from ", c.first_element,
          " on, of groups [", c.first_group, ", ",
          uint64_t{c.first_group} + c.group_count,
          "): the next is to be of all ", op.total_groups,
          " groups and to begin with element ", next, " of ", elements));
    }
    const uint64_t bytes = c.elements * sizeof(float);
    if (c.buffer.bytes < bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "slice from element ", c.first_element, " on: ", c.buffer.bytes,
          " bytes for ", c.elements, " elements"));
    }
    next += c.elements;
    slices_.push_back(
        {c.first_element, next, arena.At<float>(c.buffer.offset, c.elements)});
  }
  if (next != elements) {
    return absl::InvalidArgumentError(
        absl::StrCat("slices cover ", next, " of ", elements, " elements"));
  }
  return absl::OkStatus();
}

const float* ContributionSum::Sliced(const Chunk& chunk,
                                     std::vector<float>& gathered) const {
  uint64_t next = chunk.unit_element;
  const uint64_t end = next + chunk.elements;
  auto slice = std::upper_bound(
      slices_.begin(), slices_.end(), next,
      [](uint64_t element, const Slice& s) { return element < s.end; });
  if (end <= slice->end) return slice->values + (next - slice->begin);
  for (float* to = gathered.data(); next < end; ++slice) {
    const uint64_t count = std::min(end, slice->end) - next;
    to = std::copy_n(slice->values + (next - slice->begin), count, to);
    next += count;
  }
  return gathered.data();
}

const float* ContributionSum::Widened(size_t contribution, const Chunk& chunk,
                                      std::vector<float>& widened) const {
  const std::byte* const from =
      contributions_[contribution] + chunk.unit_element * DTypeBytes(dtype_);
  if (dtype_ == DType::kF32) return reinterpret_cast<const float*>(from);
  ToF32(dtype_, from, widened.data(), chunk.elements);
  return widened.data();
}

// The stack holds pointers: to a contribution itself, or to the stack
// position's own buffer.
const float* ContributionSum::Sum(int thread, const Chunk& chunk) {
  if (empty()) return nullptr;
  Folds& folds = folds_[thread];
  if (!slices_.empty()) return Sliced(chunk, folds[0]);
  std::vector<const float*> stack;
  for (size_t node = 0; node < contributions_.size(); ++node) {
    stack.push_back(Widened(node, chunk, folds[stack.size()]));
    for (int merge = 0; merge < program_.merges[node]; ++merge) {
      const float* right = stack.back();
      stack.pop_back();
      const float* left = stack.back();
      float* sum = folds[stack.size() - 1].data();
      for (uint64_t i = 0; i < chunk.elements; ++i) sum[i] = left[i] + right[i];
      stack.back() = sum;
    }
  }
  return stack[0];
}

}  // namespace roundhouse::worker
