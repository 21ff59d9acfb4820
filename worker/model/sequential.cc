#include "worker/model/sequential.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/convert.h"
#include "base/reduction.h"
#include "base/status.h"

namespace roundhouse::worker {
namespace {

constexpr int32_t kNoTarget = -100;

int64_t CountTargets(const std::vector<SequentialBatch>& batches) {
  int64_t targets = 0;
  for (const SequentialBatch& batch : batches) {
    const int64_t tokens = batch.rows * batch.row_tokens;
    targets +=
        tokens - std::count(batch.labels, batch.labels + tokens, kNoTarget);
  }
  return targets;
}

void AddLoss(const HeadResult& head, SequentialLoss* loss) {
  loss->loss_sum += head.loss_sum;
  loss->target_tokens += head.target_tokens;
  loss->finite = loss->finite && head.finite;
}

std::vector<SequentialBatch> Slice(const std::vector<SequentialBatch>& all,
                                   IndexRange range) {
  return {all.begin() + range.begin, all.begin() + range.end};
}

}  // namespace

double SequentialLoss::mean() const {
  if (target_tokens == 0) return 0;
  return loss_sum / static_cast<double>(target_tokens);
}

SequentialTrainer::SequentialTrainer(const SequentialOptions& options)
    : options_(options),
      units_(TrainingUnits(options.config, options.adapter)),
      units_state_(units_.size()) {
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const size_t count = static_cast<size_t>(units_[unit].element_count);
    const int number = static_cast<int>(unit);
    UnitState& state = units_state_[unit];
    state.compute.assign(count * DTypeBytes(DTypeOf(number)), std::byte{0});
    if (!trainable(number)) continue;
    state.master.assign(count, 0.0f);
    state.exp_avg.assign(count, 0.0f);
    state.exp_avg_sq.assign(count, 0.0f);
  }
  gradient_ = SequentialGradient(options_.config, options_.adapter, units_);
}

absl::StatusOr<std::unique_ptr<SequentialTrainer>> SequentialTrainer::Create(
    const SequentialOptions& options) {
  if (options.round_limit < 1 || options.group_limit < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("round_limit ", options.round_limit, " and group_limit ",
                     options.group_limit, " must be at least 1"));
  }
  if (options.keep == Keep::kNothing) {
    return absl::InvalidArgumentError("training keeps a stage or layers");
  }
  if (options.contribution_dtype != DType::kF32 &&
      (options.contributed_groups == nullptr || options.adapter.present())) {
    return absl::InvalidArgumentError(
        "contribution_dtype needs contributed_groups, and no adapters");
  }
  SetComputeThreads(options.threads);
  return std::unique_ptr<SequentialTrainer>(new SequentialTrainer(options));
}

absl::Status SequentialTrainer::SetUnit(int unit, const float* master,
                                        const float* exp_avg,
                                        const float* exp_avg_sq) {
  UnitState& state = units_state_[static_cast<size_t>(unit)];
  const int64_t count = units_[static_cast<size_t>(unit)].element_count;
  if (!trainable(unit)) {
    if (exp_avg != nullptr || exp_avg_sq != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("unit ", unit, " is frozen and has no moments"));
    }
    return CastMaster(master, count, DTypeOf(unit), state.compute.data());
  }
  const auto set = [count](const float* from, AlignedVector<float>* to) {
    if (from != nullptr) {
      std::copy_n(from, count, to->data());
    } else {
      std::fill(to->begin(), to->end(), 0.0f);
    }
  };
  set(master, &state.master);
  set(exp_avg, &state.exp_avg);
  set(exp_avg_sq, &state.exp_avg_sq);
  RETURN_IF_ERROR(
      CastMaster(master, count, DTypeOf(unit), state.compute.data()));
  if (options_.stale) state.stale = state.compute;
  return absl::OkStatus();
}

LayerWeights SequentialTrainer::WeightsOf(int64_t layer) const {
  LayerWeights weights;
  for (int unit :
       TrainingUnitsOfLayer(options_.config, options_.adapter, layer)) {
    for (const ParameterSpec& parameter :
         units_[static_cast<size_t>(unit)].parameters) {
      // The head uses the tied matrix as its own.
      const ParamRole role = parameter.role == ParamRole::kEmbedding
                                 ? ParamRole::kLmHead
                                 : parameter.role;
      weights.weight[static_cast<int>(role)] =
          Weights(unit) +
          static_cast<uint64_t>(parameter.unit_offset_elements) *
              DTypeBytes(DTypeOf(unit));
    }
  }
  return weights;
}

absl::StatusOr<AlignedVector<std::byte>> SequentialTrainer::Embed(
    const SequentialBatch& batch) const {
  const size_t row_bytes = static_cast<size_t>(options_.config.hidden_size) *
                           DTypeBytes(options_.dtype);
  const int64_t tokens = batch.rows * batch.row_tokens;
  AlignedVector<std::byte> input(static_cast<size_t>(tokens) * row_bytes);
  for (int64_t i = 0; i < tokens; ++i) {
    const int32_t token = batch.tokens[i];
    if (token < 0 || token >= options_.config.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token ", token, " at position ", i, " is outside the vocabulary of ",
          options_.config.vocab_size));
    }
    std::memcpy(input.data() + static_cast<size_t>(i) * row_bytes,
                Weights(0) + static_cast<size_t>(token) * row_bytes, row_bytes);
  }
  return input;
}

absl::StatusOr<std::unique_ptr<StageRun>> SequentialTrainer::Forward(
    const SequentialBatch& batch, const std::byte* input,
    std::optional<uint64_t> micro_batch) const {
  const bool train = micro_batch.has_value();
  ASSIGN_OR_RETURN(
      std::unique_ptr<StageRun> run,
      StageRun::Create({.config = options_.config,
                        .adapter = options_.adapter,
                        .dtype = options_.dtype,
                        .rows = batch.rows,
                        .row_tokens = batch.row_tokens,
                        .keep = train ? options_.keep : Keep::kNothing,
                        .head_token_chunk = options_.head_token_chunk,
                        .train = train,
                        .seed = options_.seed,
                        .step = static_cast<uint64_t>(completed_steps_) + 1,
                        .micro_batch = micro_batch.value_or(0)}));
  RETURN_IF_ERROR(run->SetInput(input));
  if (batch.positions != nullptr) {
    RETURN_IF_ERROR(run->SetPositions(batch.positions));
  }
  const ExpertPick* picks = batch.picks;
  for (int64_t layer = 0; layer < options_.config.layer_count; ++layer) {
    if (picks != nullptr && options_.config.HasExperts(layer)) {
      RETURN_IF_ERROR(run->SetPicks(picks));
      picks += batch.rows * batch.row_tokens *
               options_.config.mixture.experts_per_token;
    }
    RETURN_IF_ERROR(run->ForwardLayer(layer, WeightsOf(layer)));
  }
  return run;
}

absl::Status SequentialTrainer::AddEmbeddingGradient(
    const SequentialBatch& batch, StageRun* run,
    SequentialGradient* group) const {
  const int64_t tokens = batch.rows * batch.row_tokens;
  const auto elements =
      static_cast<size_t>(tokens * options_.config.hidden_size);
  AlignedVector<std::byte> gradient(elements * DTypeBytes(options_.dtype));
  RETURN_IF_ERROR(run->CopyInputGradient(gradient.data()));
  AlignedVector<float> wide(elements);
  ToF32(options_.dtype, gradient.data(), wide.data(), wide.size());
  group->AddEmbeddingTokens(batch.tokens, tokens, wide.data());
  return absl::OkStatus();
}

absl::Status SequentialTrainer::RunMicroBatch(const SequentialBatch& batch,
                                              double loss_scale,
                                              SequentialGradient* group,
                                              SequentialLoss* loss) {
  ASSIGN_OR_RETURN(AlignedVector<std::byte> input, Embed(batch));
  ASSIGN_OR_RETURN(std::unique_ptr<StageRun> run,
                   Forward(batch, input.data(), next_micro_batch_++));
  group->BeginMicroBatch();
  ASSIGN_OR_RETURN(
      const HeadResult head,
      run->Head(WeightsOf(options_.config.layer_count), batch.labels,
                HeadMode::kLossAndGradient, loss_scale, group));
  AddLoss(head, loss);
  for (int64_t layer = options_.config.layer_count - 1; layer >= 0; --layer) {
    RETURN_IF_ERROR(run->BackwardLayer(layer, group));
  }
  if (!trainable(0)) return absl::OkStatus();
  return AddEmbeddingGradient(batch, run.get(), group);
}

absl::StatusOr<SequentialGradient> SequentialTrainer::RunGroup(
    const std::vector<SequentialBatch>& batches, double loss_scale,
    SequentialLoss* loss) {
  SequentialGradient group(options_.config, options_.adapter, units_);
  for (const SequentialBatch& batch : batches) {
    RETURN_IF_ERROR(RunMicroBatch(batch, loss_scale, &group, loss));
  }
  return group;
}

absl::StatusOr<SequentialGradient> SequentialTrainer::RunRound(
    const std::vector<SequentialBatch>& batches, double loss_scale,
    SequentialLoss* loss) {
  TreeFold fold;
  std::vector<SequentialGradient> sums;
  std::vector<IndexRange> nodes;  // of groups
  const std::vector<IndexRange> groups =
      GroupRanges(static_cast<int64_t>(batches.size()), options_.group_limit);
  const auto count = static_cast<int64_t>(groups.size());
  const auto apply = [&](const std::vector<TreeAdd>& adds) {
    for (const TreeAdd& add : adds) {
      const auto into = static_cast<size_t>(add.into);
      const auto from = static_cast<size_t>(add.from);
      sums[into].Add(sums[from]);
      sums[from] = SequentialGradient();
      nodes[into].end = nodes[from].end;
      RoundContributed(nodes[into], count, &sums[into]);
    }
  };
  for (int64_t g = 0; g < count; ++g) {
    ASSIGN_OR_RETURN(SequentialGradient group,
                     RunGroup(Slice(batches, groups[static_cast<size_t>(g)]),
                              loss_scale, loss));
    sums.push_back(std::move(group));
    nodes.push_back({g, g + 1});
    RoundContributed(nodes.back(), count, &sums.back());
    apply(fold.Push(static_cast<int>(g)));
  }
  apply(fold.Finish());
  return std::move(sums[static_cast<size_t>(fold.root())]);
}

void SequentialTrainer::RoundContributed(IndexRange node, int64_t groups,
                                         SequentialGradient* sum) const {
  if (options_.contribution_dtype == DType::kF32) return;
  for (int64_t layer = 0; layer <= options_.config.layer_count; ++layer) {
    const std::vector<IndexRange> sent =
        options_.contributed_groups(layer, groups);
    const bool leaves =
        std::any_of(sent.begin(), sent.end(), [&](const IndexRange& one) {
          return one.begin == node.begin && one.end == node.end;
        });
    if (!leaves) continue;
    for (int unit : TrainingUnitsOfLayer(options_.config, {}, layer)) {
      sum->Round(unit, options_.contribution_dtype);
    }
  }
}

double SequentialTrainer::GradientNorm() const {
  double total = 0;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    if (!trainable(static_cast<int>(unit))) continue;
    double sum = 0;
    for (const ParameterSpec& parameter : units_[unit].parameters) {
      const float* values =
          gradient(static_cast<int>(unit)) + parameter.unit_offset_elements;
      for (int64_t at = 0; at < parameter.element_count;
           at += kReduceChunkElements) {
        sum += ChunkSumOfSquares(
            values + at,
            std::min(kReduceChunkElements, parameter.element_count - at));
      }
    }
    total += sum;
  }
  return std::sqrt(total);
}

absl::Status SequentialTrainer::UpdateParameter(const ParameterSpec& parameter,
                                                int unit, const AdamWStep& step,
                                                float clip_factor) {
  UnitState& state = units_state_[static_cast<size_t>(unit)];
  AlignedVector<float> clipped;
  for (int64_t begin = 0; begin < parameter.element_count;
       begin += kReduceChunkElements) {
    const int64_t count =
        std::min(kReduceChunkElements, parameter.element_count - begin);
    const int64_t at = parameter.unit_offset_elements + begin;
    clipped.assign(gradient(unit) + at, gradient(unit) + at + count);
    if (clip_factor != 1.0f) {
      for (float& value : clipped) value *= clip_factor;
    }
    RETURN_IF_ERROR(
        AdamWUpdate(step, {.gradient = clipped.data(),
                           .count = count,
                           .master = state.master.data() + at,
                           .exp_avg = state.exp_avg.data() + at,
                           .exp_avg_sq = state.exp_avg_sq.data() + at,
                           .weight_decay = parameter.weight_decay}));
  }
  return absl::OkStatus();
}

absl::Status SequentialTrainer::Update(double learning_rate,
                                       float clip_factor) {
  const AdamWStep step{
      .options = options_.adamw,
      .learning_rate = learning_rate,
      .step = completed_steps_ + 1 - loss_scaler_.state().skipped_steps};
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const int number = static_cast<int>(unit);
    if (!trainable(number)) continue;
    for (const ParameterSpec& parameter : units_[unit].parameters) {
      RETURN_IF_ERROR(UpdateParameter(parameter, number, step, clip_factor));
    }
    UnitState& state = units_state_[unit];
    if (options_.stale) state.stale = state.compute;
    RETURN_IF_ERROR(CastMaster(state.master.data(), units_[unit].element_count,
                               DTypeOf(number), state.compute.data()));
  }
  return absl::OkStatus();
}

absl::StatusOr<SequentialStep> SequentialTrainer::Step(
    const std::vector<SequentialBatch>& batches, double learning_rate) {
  if (batches.empty()) {
    return absl::InvalidArgumentError("a step needs a micro-batch");
  }
  const double loss_scale =
      static_cast<double>(scale()) /
      static_cast<double>(std::max<int64_t>(1, CountTargets(batches)));
  SequentialStep result;
  next_micro_batch_ = 0;
  training_ = true;
  bool is_first = true;
  for (IndexRange range : RoundRanges(static_cast<int64_t>(batches.size()),
                                      options_.round_limit)) {
    ASSIGN_OR_RETURN(SequentialGradient round,
                     RunRound(Slice(batches, range), loss_scale, &result.loss));
    if (is_first) {
      gradient_ = std::move(round);
    } else {
      gradient_.Add(round);
    }
    gradient_.AddTiedRows();
    is_first = false;
  }
  gradient_.DensifyEmbedding();
  result.gradient_norm = GradientNorm() / static_cast<double>(scale());
  if (!result.loss.finite) return result;
  result.updated = !options_.scale_loss || std::isfinite(result.gradient_norm);
  if (result.updated) {
    const float clip =
        ClipFactor(result.gradient_norm, options_.max_gradient_norm);
    RETURN_IF_ERROR(Update(learning_rate, clip / scale()));
  }
  ++completed_steps_;
  if (options_.scale_loss) loss_scaler_.EndStep(result.updated);
  return result;
}

absl::StatusOr<SequentialLoss> SequentialTrainer::Evaluate(
    const std::vector<SequentialBatch>& batches) {
  SequentialLoss loss;
  training_ = false;
  for (const SequentialBatch& batch : batches) {
    ASSIGN_OR_RETURN(AlignedVector<std::byte> input, Embed(batch));
    ASSIGN_OR_RETURN(std::unique_ptr<StageRun> run,
                     Forward(batch, input.data(), std::nullopt));
    ASSIGN_OR_RETURN(
        const HeadResult head,
        run->Head(WeightsOf(options_.config.layer_count), batch.labels,
                  HeadMode::kLossOnly, 1.0, nullptr));
    AddLoss(head, &loss);
  }
  return loss;
}

}  // namespace roundhouse::worker
