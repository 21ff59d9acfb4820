#include "server/planning/plan_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "scheduler/plan/step_plan.h"
#include "scheduler/search/step_search.h"

namespace roundhouse {
namespace {

// For each decoder layer the mean of its kind, whose times differ by chance
// only: with or without experts, with or without a window.
std::vector<int64_t> MeansOfKinds(const ModelConfig& config,
                                  const std::vector<int64_t>& of_layers) {
  const auto kind_of = [&](int64_t layer) {
    return std::pair(config.HasExperts(layer), config.WindowOf(layer) > 0);
  };
  std::map<std::pair<bool, bool>, std::pair<int64_t, int64_t>> sums;
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    auto& [sum, count] = sums[kind_of(layer)];
    sum += of_layers[static_cast<size_t>(layer)];
    ++count;
  }
  std::vector<int64_t> means;
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    const auto& [sum, count] = sums[kind_of(layer)];
    means.push_back(sum / count);
  }
  return means;
}

// `weights` and `gradients` are in bytes, by layer.
std::vector<BlockCosts> BlocksOf(const ModelConfig& config,
                                 const std::vector<int64_t>& forward_ns,
                                 const std::vector<int64_t>& backward_ns,
                                 const std::vector<int64_t>& weights,
                                 const std::vector<int64_t>& gradients) {
  const std::vector<int64_t> forward = MeansOfKinds(config, forward_ns);
  const std::vector<int64_t> backward = MeansOfKinds(config, backward_ns);
  std::vector<BlockCosts> blocks;
  for (size_t layer = 0; layer < forward.size(); ++layer) {
    blocks.push_back(
        {.forward_ns = forward[layer],
         .backward_ns = backward[layer],
         .bytes = weights[layer],
         .gradient_bytes = gradients[layer],
         .active_inner = config.ActiveInner(static_cast<int64_t>(layer))});
  }
  return blocks;
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
  out.SetBlocks(BlocksOf(config, recompute, backward, weights, gradients));
  out.head_forward_ns = recompute.back();
  out.head_backward_ns = backward.back();
  out.head_bytes = weights.back();
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
