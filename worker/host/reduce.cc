#include "worker/host/reduce.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/reduction.h"
#include "base/status.h"

namespace roundhouse::worker {
namespace {

float* ScratchSum(std::byte* scratch) {
  return reinterpret_cast<float*>(scratch + kScratchHeaderBytes);
}

}  // namespace

Reduce::Reduce(const JobView& job, const wire::HostOp& op)
    : job_(job),
      unit_(op.unit),
      add_to_sum_(op.sum_write == wire::SumWrite::kAdd),
      want_norm_(op.want_norm),
      keep_partials_(op.keep_partials),
      chunks_(job.Chunks(op.unit)) {}

absl::StatusOr<std::unique_ptr<Reduce>> Reduce::Make(wire::Arena& arena,
                                                     const JobView& job,
                                                     const wire::HostOp& op,
                                                     int threads) {
  const wire::UnitLayout& unit = job.unit(op.unit);
  if (op.contributions.empty() && op.micro_batches.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("nothing to add for unit ", op.unit));
  }
  if (op.keep_partials &&
      (op.sum_write == wire::SumWrite::kReplace || !op.contributions.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("unit ", op.unit,
                     ": keep_partials is for rows that are added to a sum"));
  }
  RETURN_IF_ERROR(job.CheckTrainable(op.unit));
  if (!job.KeepsSum(op.unit)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unit ", op.unit, " keeps no gradient sum: its update adds"));
  }
  std::unique_ptr<Reduce> reduce(new Reduce(job, op));
  reduce->grad_sum_ = job.Fp32(op.unit, unit.grad_sum_offset);
  if (op.want_norm) reduce->norm_partials_ = job.NormPartials(op.unit);
  ASSIGN_OR_RETURN(reduce->contributed_,
                   ContributionSum::Make(arena, job, op, threads));
  RETURN_IF_ERROR(reduce->TakeMicroBatches(arena, op));
  for (int thread = 0; thread < threads; ++thread) {
    Workspace space;
    if (reduce->embedding_) {
      space.rows = reduce->embedding_->MakeStack();
      space.row.resize(reduce->embedding_->hidden());
    }
    reduce->workspaces_.push_back(std::move(space));
  }
  return reduce;
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
  const float* const contributed = contributed_.Sum(thread, chunk);
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
