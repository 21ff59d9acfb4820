#include "worker/host/reduce.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/convert.h"
#include "base/reduction.h"
#include "base/status.h"

namespace roundhouse::worker {
namespace {

float* ScratchSum(std::byte* scratch) {
  return reinterpret_cast<float*>(scratch + kScratchHeaderBytes);
}

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

Reduce::Reduce(const JobView& job, const wire::HostOp& op)
    : job_(job),
      unit_(op.unit),
      add_to_sum_(op.add_to_sum != 0),
      want_norm_(op.want_norm != 0),
      keep_partials_(op.keep_partials != 0),
      contribution_dtype_(op.contribution_dtype),
      chunks_(job.Chunks(op.unit)) {}

absl::StatusOr<std::unique_ptr<Reduce>> Reduce::Make(wire::Arena& arena,
                                                     const JobView& job,
                                                     const wire::HostOp& op,
                                                     int threads) {
  const wire::UnitLayout& unit = job.unit(op.unit);
  if (op.total_groups < 1 || op.total_groups > wire::kMaxArray) {
    return absl::InvalidArgumentError(
        absl::StrCat("total_groups is ", op.total_groups));
  }
  if (op.contributions.empty() && op.micro_batches.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("nothing to add for unit ", op.unit));
  }
  if (op.keep_partials != 0 &&
      (op.add_to_sum == 0 || !op.contributions.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("unit ", op.unit,
                     ": keep_partials is for rows that are added to a sum"));
  }
  RETURN_IF_ERROR(job.CheckTrainable(op.unit));
  std::unique_ptr<Reduce> reduce(new Reduce(job, op));
  reduce->grad_sum_ = job.Fp32(op.unit, unit.grad_sum_offset);
  if (op.want_norm != 0) reduce->norm_partials_ = job.NormPartials(op.unit);
  RETURN_IF_ERROR(reduce->TakeContributions(arena, op));
  RETURN_IF_ERROR(reduce->TakeMicroBatches(arena, op));
  const uint64_t fold_elements =
      std::min(unit.element_count, wire::kChunkElements);
  for (int thread = 0; thread < threads; ++thread) {
    Workspace space;
    space.folds.assign(reduce->program_.depth,
                       std::vector<float>(fold_elements));
    if (reduce->embedding_) {
      space.rows = reduce->embedding_->MakeStack();
      space.row.resize(reduce->embedding_->hidden());
    }
    reduce->workspaces_.push_back(std::move(space));
  }
  return reduce;
}

absl::Status Reduce::TakeContributions(wire::Arena& arena,
                                       const wire::HostOp& op) {
  std::vector<wire::HostContribution> sorted = op.contributions;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) {
                     return a.first_group < b.first_group;
                   });
  RETURN_IF_ERROR(CheckCoverage(sorted, op.total_groups));
  const uint64_t elements = job_.unit(unit_).element_count;
  const uint64_t bytes = elements * DTypeBytes(contribution_dtype_);
  std::vector<int64_t> leaves;
  for (const wire::HostContribution& c : sorted) {
    if (c.buffer.bytes < bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("contribution of group ", c.first_group, ": ",
                       c.buffer.bytes, " bytes for ", elements, " ",
                       DTypeName(contribution_dtype_), " elements"));
    }
    contributions_.push_back(arena.At<std::byte>(c.buffer.offset, bytes));
    leaves.push_back(c.group_count);
  }
  program_ = TreeProgram::Make(leaves);
  return absl::OkStatus();
}

absl::Status Reduce::TakeMicroBatches(wire::Arena& arena,
                                      const wire::HostOp& op) {
  if (op.micro_batches.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(job_.EmbeddingElement(unit_).status());
  const auto vocab = static_cast<uint64_t>(job_.model().vocab_size);
  const auto hidden = static_cast<uint64_t>(job_.model().hidden_size);
  std::vector<TokenBatch> batches;
  for (size_t i = 0; i < op.micro_batches.size(); ++i) {
    const wire::HostMicroBatch& batch = op.micro_batches[i];
    if (batch.word.offset != 0 &&
        !wire::Reached(arena.WordAt(batch.word.offset), batch.word.value)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "micro-batch ", i, ": its gradient is not there yet (word below ",
          batch.word.value, ")"));
    }
    ASSIGN_OR_RETURN(
        const TokenBatch checked,
        CheckTokenBatch(arena, batch, i, vocab, hidden, job_.dtype()));
    batches.push_back(checked);
  }
  ASSIGN_OR_RETURN(embedding_,
                   EmbeddingRows::Make(std::move(batches), op.total_groups,
                                       vocab, hidden, job_.dtype()));
  return absl::OkStatus();
}

absl::Status Reduce::Compute(int thread, uint32_t index, std::byte* scratch) {
  const Chunk& chunk = chunks_[index];
  Workspace& space = workspaces_[thread];
  const float* const contributed = Fold(space, chunk);
  const float* const before =
      add_to_sum_ ? grad_sum_ + chunk.unit_element : nullptr;
  float* const sum = ScratchSum(scratch);
  if (before != nullptr && contributed != nullptr) {
    for (uint64_t i = 0; i < chunk.elements; ++i) {
      sum[i] = before[i] + contributed[i];
    }
  } else if (const float* one = before != nullptr ? before : contributed) {
    std::memcpy(sum, one, chunk.elements * sizeof(float));
  }
  if (embedding_) {
    AddRows(space, chunk, before != nullptr || contributed != nullptr, sum);
  }
  if (want_norm_) {
    *reinterpret_cast<double*>(scratch) =
        ChunkSumOfSquares(sum, static_cast<int64_t>(chunk.elements));
  }
  return absl::OkStatus();
}

bool Reduce::Unchanged(uint32_t index) const {
  if (!keep_partials_) return false;
  const Chunk& chunk = chunks_[index];
  const uint64_t hidden = embedding_->hidden();
  const uint64_t last = (chunk.parameter_element + chunk.elements - 1) / hidden;
  for (uint64_t row = chunk.parameter_element / hidden; row <= last; ++row) {
    if (embedding_->Has(row)) return false;
  }
  return true;
}

const float* Reduce::Widened(size_t contribution, const Chunk& chunk,
                             std::vector<float>& widened) const {
  const std::byte* const from =
      contributions_[contribution] +
      chunk.unit_element * DTypeBytes(contribution_dtype_);
  if (contribution_dtype_ == DType::kF32) {
    return reinterpret_cast<const float*>(from);
  }
  ToF32(contribution_dtype_, from, widened.data(), chunk.elements);
  return widened.data();
}

// Null without contributions.  The stack holds pointers: to a contribution
// itself, or to the stack position's own buffer.
const float* Reduce::Fold(Workspace& space, const Chunk& chunk) const {
  std::vector<const float*> stack;
  for (size_t node = 0; node < contributions_.size(); ++node) {
    stack.push_back(Widened(node, chunk, space.folds[stack.size()]));
    for (int merge = 0; merge < program_.merges[node]; ++merge) {
      const float* right = stack.back();
      stack.pop_back();
      const float* left = stack.back();
      float* sum = space.folds[stack.size() - 1].data();
      for (uint64_t i = 0; i < chunk.elements; ++i) sum[i] = left[i] + right[i];
      stack.back() = sum;
    }
  }
  return stack.empty() ? nullptr : stack[0];
}

void Reduce::AddRows(Workspace& space, const Chunk& chunk, bool there,
                     float* sum) const {
  const uint64_t hidden = embedding_->hidden();
  uint64_t element = chunk.parameter_element;
  const uint64_t end = element + chunk.elements;
  while (element < end) {
    const uint64_t row = element / hidden;
    const uint64_t column = element % hidden;
    const uint64_t count = std::min(hidden - column, end - element);
    if (!embedding_->Has(row)) {
      if (!there) std::fill_n(sum, count, 0.0f);
    } else if (!there) {
      embedding_->Sum(row, column, count, space.rows, sum);
    } else {
      embedding_->Sum(row, column, count, space.rows, space.row.data());
      for (uint64_t i = 0; i < count; ++i) sum[i] += space.row[i];
    }
    sum += count;
    element += count;
  }
}

void Reduce::CopyIntoPlace(uint32_t index, const std::byte* scratch) {
  const Chunk& chunk = chunks_[index];
  std::memcpy(grad_sum_ + chunk.unit_element, scratch + kScratchHeaderBytes,
              chunk.elements * sizeof(float));
  if (want_norm_) {
    norm_partials_[index] = *reinterpret_cast<const double*>(scratch);
  }
}

double Reduce::NormSquared() const {
  double sum = 0;
  if (!want_norm_) return sum;
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    sum += norm_partials_[chunk];
  }
  return sum;
}

}  // namespace roundhouse::worker
