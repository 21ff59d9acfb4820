#include "server/planning/plan_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/log.h"
#include "base/status.h"
#include "scheduler/plan/step_plan.h"
#include "scheduler/search/step_search.h"

namespace roundhouse {
namespace {

// Over the decoder layers; the last one is the head.
int64_t BlockMean(const std::vector<int64_t>& layers) {
  const auto blocks = static_cast<int64_t>(layers.size()) - 1;
  return std::accumulate(layers.begin(), layers.end() - 1, int64_t{0}) / blocks;
}

int64_t Nanoseconds(absl::Duration duration) {
  return absl::ToInt64Nanoseconds(duration);
}

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

bool Drifts(double now, double then) {
  return std::abs(now - then) > kPlanTolerance * then;
}

// All that the job can have between stages.
int64_t MostTensors(const JobPlanQuestion& question) {
  const RoundBuffersOptions& buffers = question.limits.buffers;
  return buffers.boundary_tensors +
         static_cast<int64_t>(question.host_bytes /
                              BoundaryTensorBytes(buffers));
}

}  // namespace

bool PlanReview::Due(int64_t micro_batch_ns,
                     const std::vector<double>& speeds) {
  ++steps_;
  if (reviewed_step_ == 0) {
    if (steps_ < kFirstReviewedStep) return false;
  } else if (speeds.size() == speeds_.size()) {
    // Times are for a device of speed 1, which is what all are on average.
    const double now = Sum(speeds), then = Sum(speeds_);
    bool drifts = Drifts(static_cast<double>(micro_batch_ns) / now,
                         static_cast<double>(micro_batch_ns_) / then);
    for (size_t i = 0; i < speeds.size(); ++i) {
      drifts = drifts || Drifts(speeds[i] / now, speeds_[i] / then);
    }
    if (!drifts || steps_ < reviewed_step_ + kStepsBetweenReviews) return false;
  }
  reviewed_step_ = steps_;
  micro_batch_ns_ = micro_batch_ns;
  speeds_ = speeds;
  return true;
}

ModelCosts MeasuredCosts(const CostModel& costs, const TrainedModel& model,
                         int64_t tokens) {
  ROUNDHOUSE_CHECK(costs.training_measured());
  std::vector<int64_t> recompute;
  std::vector<int64_t> backward;
  for (int layer = 0; layer < costs.layer_count(); ++layer) {
    recompute.push_back(Nanoseconds(costs.Recompute(layer)));
    backward.push_back(std::max<int64_t>(
        1, Nanoseconds(costs.Backward(layer)) - recompute.back()));
  }
  const std::vector<int64_t> weights = LayerBytes(model);
  // The simulator's gradients are of two bytes an element.
  std::vector<int64_t> gradients = LayerGradientBytes(model);
  for (int64_t& bytes : gradients) bytes /= 2;
  const ModelConfig& config = model.config;
  ModelCosts out;
  out.name = "the job's model";
  out.layers = static_cast<int>(config.layer_count);
  out.forward_ns = BlockMean(recompute);
  out.backward_ns = BlockMean(backward);
  out.head_forward_ns = recompute.back();
  out.head_backward_ns = backward.back();
  out.layer_bytes = BlockMean(weights);
  out.head_bytes = weights.back();
  out.layer_gradient_bytes = BlockMean(gradients);
  out.head_gradient_bytes = gradients.back();
  if (IsTrainable(config, model.adapter, 0)) {
    out.embedding_gradient_bytes = 2 * config.vocab_size * config.hidden_size;
    out.tied_head = config.tie_word_embeddings;
  }
  out.element_bytes = DTypeBytes(model.dtype);
  out.tokens = tokens;
  out.hidden = config.hidden_size;
  out.heads = config.head_count;
  out.kv_heads = config.kv_head_count;
  out.head_dim = config.head_dim;
  out.inner = config.intermediate_size;
  out.experts_per_token = 1;
  const int64_t boundary = tokens * config.hidden_size * out.element_bytes;
  out.hop_ns = (boundary + kHopBytesPerNs - 1) / kHopBytesPerNs;
  return out;
}

absl::StatusOr<FoundPlan> FindPlan(const JobPlanQuestion& question) {
  const int micro_batches = question.limits.buffers.micro_batches;
  const PlanLimits limits(question.limits);
  SearchOptions options;
  options.contributions =
      question.limits.buffers.contributions.dtype == DType::kF32
          ? Contributions::kFp32
          : Contributions::kModelDtype;
  options.updates = question.updates;
  options.rounds = question.rounds;
  options.groups = static_cast<int>(question.limits.groups);
  options.most_look_ahead = 1;
  options.saving = question.present.saving;
  options.fused = FusedSlots::kByLayer;
  options.boundary_tensors = MostTensors(question);
  options.accepts = [&](const StepPlan& round) {
    const Plan plan = PlanOfFullRound(round, micro_batches);
    return MaxRoundMicroBatches(plan) >= micro_batches &&
           limits.CheckSlots(plan).ok() &&
           MoreBytesFor(plan, question.limits.buffers, question.sum_blocks) <=
               question.host_bytes;
  };
  ASSIGN_OR_RETURN(
      const SearchResult best,
      SearchStepPlan(question.costs, question.machine, micro_batches, options));
  FoundPlan found;
  found.plan = PlanOfFullRound(best.plan, micro_batches);
  found.step_ns = best.step_ns;
  found.ranked = best.ranked;
  found.simulated = best.simulated;
  const auto present = SimulatedStepNs(
      question.costs, question.machine,
      PlanOfRound(question.present, micro_batches, options.groups),
      micro_batches, options);
  found.present_step_ns =
      present.ok() ? *present : std::numeric_limits<int64_t>::max();
  return found;
}

}  // namespace roundhouse
