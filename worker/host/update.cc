#include "worker/host/update.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/reduction.h"
#include "base/status.h"

namespace roundhouse::worker {
namespace {

// A scratch slot while a chunk is updated.
struct NewState {
  float* master;
  float* exp_avg;
  float* exp_avg_sq;
  std::byte* compute;
};

NewState StateIn(std::byte* scratch) {
  auto* first = reinterpret_cast<float*>(scratch + kScratchHeaderBytes);
  return {first, first + wire::kChunkElements, first + 2 * wire::kChunkElements,
          reinterpret_cast<std::byte*>(first + 3 * wire::kChunkElements)};
}

AdamWStep StepOf(const wire::HostOp& op) {
  AdamWStep step;
  step.options = {op.beta1, op.beta2, op.epsilon, op.weight_decay};
  step.learning_rate = op.learning_rate;
  step.step = static_cast<int64_t>(op.step);
  return step;
}

}  // namespace

Update::Update(const JobView& job, const wire::HostOp& op, std::byte* weights,
               int threads)
    : step_(StepOf(op)),
      gradient_scale_(op.gradient_scale),
      dtype_(job.dtype(op.unit)),
      chunks_(job.Chunks(op.unit)),
      master_(job.Fp32(op.unit, job.unit(op.unit).master_offset)),
      exp_avg_(job.Fp32(op.unit, job.unit(op.unit).exp_avg_offset)),
      exp_avg_sq_(job.Fp32(op.unit, job.unit(op.unit).exp_avg_sq_offset)),
      compute_(weights) {
  if (gradient_scale_ == 1.0f) return;
  const uint64_t elements =
      std::min(job.unit(op.unit).element_count, wire::kChunkElements);
  scaled_.assign(threads, std::vector<float>(elements));
}

absl::StatusOr<std::unique_ptr<Update>> Update::Make(const wire::Arena& arena,
                                                     const JobView& job,
                                                     const wire::HostOp& op,
                                                     int threads) {
  if (op.step < 1) {
    return absl::InvalidArgumentError("update: step numbers begin with 1");
  }
  RETURN_IF_ERROR(job.CheckTrainable(op.unit));
  ASSIGN_OR_RETURN(std::byte* const weights, job.Weights(op.unit, op.weights));
  std::unique_ptr<Update> update(new Update(job, op, weights, threads));
  ASSIGN_OR_RETURN(update->contributed_,
                   ContributionSum::Make(arena, job, op, threads));
  if (!update->contributed_.empty()) {
    if (op.want_norm) update->norm_partials_ = job.NormPartials(op.unit);
  } else if (job.KeepsSum(op.unit)) {
    update->grad_sum_ = job.Fp32(op.unit, job.unit(op.unit).grad_sum_offset);
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "update: unit ", op.unit, " has neither a sum nor contributions"));
  }
  return update;
}

const float* Update::Sum(int thread, const Chunk& chunk) {
  return grad_sum_ != nullptr ? grad_sum_ + chunk.unit_element
                              : contributed_.Sum(thread, chunk);
}

const float* Update::Scaled(int thread, const Chunk& chunk, const float* sum) {
  if (gradient_scale_ == 1.0f) return sum;
  float* const scaled = scaled_[thread].data();
  for (uint64_t i = 0; i < chunk.elements; ++i) {
    scaled[i] = sum[i] * gradient_scale_;
  }
  return scaled;
}

absl::Status Update::Compute(int thread, uint32_t index, std::byte* scratch) {
  const Chunk& chunk = chunks_[index];
  const NewState state = StateIn(scratch);
  const uint64_t bytes = chunk.elements * sizeof(float);
  std::memcpy(state.master, master_ + chunk.unit_element, bytes);
  std::memcpy(state.exp_avg, exp_avg_ + chunk.unit_element, bytes);
  std::memcpy(state.exp_avg_sq, exp_avg_sq_ + chunk.unit_element, bytes);
  const auto count = static_cast<int64_t>(chunk.elements);
  const float* const sum = Sum(thread, chunk);
  if (norm_partials_ != nullptr) {
    *reinterpret_cast<double*>(scratch) = ChunkSumOfSquares(sum, count);
  }
  RETURN_IF_ERROR(AdamWUpdate(step_, {.gradient = Scaled(thread, chunk, sum),
                                      .count = count,
                                      .master = state.master,
                                      .exp_avg = state.exp_avg,
                                      .exp_avg_sq = state.exp_avg_sq,
                                      .weight_decay = chunk.weight_decay}));
  return CastMaster(state.master, count, dtype_, state.compute);
}

void Update::CopyIntoPlace(uint32_t index, const std::byte* scratch) {
  const Chunk& chunk = chunks_[index];
  const NewState state = StateIn(const_cast<std::byte*>(scratch));
  const uint64_t bytes = chunk.elements * sizeof(float);
  std::memcpy(master_ + chunk.unit_element, state.master, bytes);
  std::memcpy(exp_avg_ + chunk.unit_element, state.exp_avg, bytes);
  std::memcpy(exp_avg_sq_ + chunk.unit_element, state.exp_avg_sq, bytes);
  const uint64_t element_bytes = DTypeBytes(dtype_);
  std::memcpy(compute_ + chunk.unit_element * element_bytes, state.compute,
              chunk.elements * element_bytes);
  if (norm_partials_ != nullptr) {
    norm_partials_[index] = *reinterpret_cast<const double*>(scratch);
  }
}

double Update::NormSquared() const {
  return norm_partials_ == nullptr
             ? 0
             : std::accumulate(norm_partials_, norm_partials_ + chunks_.size(),
                               0.0);
}

}  // namespace roundhouse::worker
