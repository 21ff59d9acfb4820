#include "server/planning/job_needs.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "scheduler/dispatch/sent_work.h"
#include "scheduler/plan/step_plan.h"
#include "server/dataset/dataset.h"
#include "server/spec/model_limits.h"
#include "server/spec/spec_error.h"
#include "server/weights/base_weights.h"

namespace roundhouse {
namespace {

int64_t StepMicroBatches(const ResolvedSpec& spec) {
  return (spec.spec().batch_size + spec.micro_batch_size() - 1) /
         spec.micro_batch_size();
}

int64_t RoundMicroBatches(const ResolvedSpec& spec) {
  return std::min(StepMicroBatches(spec), spec.micro_batches_per_round());
}

// Groups of a full round.
int64_t RoundGroups(const ResolvedSpec& spec) {
  return std::min(spec.gradient_groups(), RoundMicroBatches(spec));
}

// Plan::split of these stages.
void AddSplits(const std::vector<StageWidth>& widths, int64_t groups,
               Plan& plan) {
  for (const StageWidth& width : widths) {
    std::vector<int> parts(width.groups.begin(), width.groups.end());
    if (parts.empty()) parts.assign(width.width, 1);
    plan.split.push_back(SplitOf(parts, static_cast<int>(groups)));
  }
}

absl::Status CheckDevices(const char* direction,
                          const std::vector<StageWidth>& widths,
                          int device_count) {
  for (size_t stage = 0; stage < widths.size(); ++stage) {
    if (widths[stage].devices() <= device_count) continue;
    return FieldError(
        FieldReason::kInvalidValue, "plan",
        absl::StrCat(direction, "[", stage, "] is ", widths[stage].devices(),
                     " devices wide; this server has ", device_count));
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> ExplicitToPlan(const ResolvedSpec& spec, int layers) {
  const ExplicitPlan& text = *spec.spec().plan;
  Plan plan;
  plan.fused = true;
  for (const StageRange& s : text.forward) {
    plan.forward.push_back({s.first, s.last});
  }
  for (const StageRange& s : text.backward) {
    plan.backward.push_back({s.first, s.last});
  }
  AddSplits(text.forward_width, RoundGroups(spec), plan);
  AddSplits(text.backward_width, RoundGroups(spec), plan);
  absl::Status status = CheckPlan(plan, layers);
  if (status.ok() && plan.backward.empty()) {
    status = absl::InvalidArgumentError("plan.backward: has no stage");
  }
  if (!status.ok()) {
    return RequestError(FieldReason::kInvalidValue, "plan",
                        std::string(status.message()));
  }
  return plan;
}

// What runs again is as wide as it was.
void SetSaving(const Saving& saving, Plan& plan) {
  plan.saving = saving;
  if (plan.split.empty()) return;
  const std::vector<std::vector<int>> given = std::move(plan.split);
  plan.split.clear();
  for (const PlanSlot& slot : SlotsOf(plan)) {
    size_t of = slot.stage;
    if (slot.again) {
      of = std::find_if(plan.forward.begin(), plan.forward.end(),
                        [&slot](const LayerRange& stage) {
                          return stage.Contains(slot.layers.first);
                        }) -
           plan.forward.begin();
    } else if (slot.kind != SlotKind::kForward) {
      of += plan.forward.size();
    }
    plan.split.push_back(given[of]);
  }
}

// The tokens of eval_prompts and their completions, while nothing is loaded or
// saved.
uint64_t EvalPromptBytes(const ResolvedSpec& spec, const ModelConfig& model) {
  const auto tokens =
      static_cast<uint64_t>(model.max_position_tokens + kEvalNewTokens);
  return spec.spec().eval_prompts.size() * (tokens * sizeof(int32_t) + 64);
}

}  // namespace

int64_t StepRounds(const ResolvedSpec& spec) {
  const int64_t most = RoundMicroBatches(spec);
  return (StepMicroBatches(spec) + most - 1) / most;
}

bool UpdatesInOnePass(const ResolvedSpec& spec) {
  return !WaitsForNorm(spec.spec()) && StepRounds(spec) == 1;
}

Updates UpdatesOf(const ResolvedSpec& spec) {
  const bool one_pass = UpdatesInOnePass(spec);
  if (spec.spec().optimizer_mode == OptimizerMode::kAsync) {
    return one_pass ? Updates::kOnePassStale : Updates::kStale;
  }
  if (one_pass) return Updates::kOnePass;
  return WaitsForNorm(spec.spec()) ? Updates::kClipped : Updates::kAsReduced;
}

DType ContributionDType(const ResolvedSpec& spec) {
  const bool fast = spec.determinism() == Determinism::kFast &&
                    spec.spec().method == TrainingMethod::kFull;
  return fast ? spec.dtype() : DType::kF32;
}

Determinism UsualDeterminism(const DeviceRoom& device) {
  // Devices with libraries are GPUs.
  return device.with_libraries ? Determinism::kFast : Determinism::kBitwise;
}

DType MostlyIn(const ModelDirectory& model) {
  std::map<DType, uint64_t> elements;
  for (const auto& unit : model.sources) {
    for (const ParameterSource& source : unit) {
      elements[source.dtype] += source.bytes / DTypeBytes(source.dtype);
    }
  }
  DType most = model.config.dtype;
  for (const auto& [dtype, count] : elements) {
    if (count > elements[most]) most = dtype;
  }
  return most;
}

DType UsualDtype(const ModelDirectory& model) {
  return MostlyIn(model) == DType::kF32 ? DType::kF32 : DType::kBF16;
}

SpecDefaults DefaultsOf(const ModelDirectory& model, const DeviceRoom& device) {
  return {.determinism = UsualDeterminism(device),
          .max_length = UsualMaxLength(model.config.max_position_tokens),
          .dtype = UsualDtype(model)};
}

TrainedModel TrainedOf(const ResolvedSpec& spec, const ModelConfig& model) {
  return {model, spec.adapter(), spec.dtype()};
}

TrainingStateOptions StateOptions(uint64_t job, const ResolvedSpec& spec,
                                  const ModelConfig& model) {
  TrainingStateOptions options;
  options.job = job;
  options.model = model;
  options.adapter = spec.adapter();
  options.dtype = spec.dtype();
  options.seed = static_cast<uint64_t>(spec.spec().seed);
  options.head_token_chunk = spec.spec().head_token_chunk;
  options.stale = spec.spec().optimizer_mode == OptimizerMode::kAsync;
  options.one_pass = UpdatesInOnePass(spec);
  return options;
}

RoundBuffersOptions BufferOptions(const ResolvedSpec& spec,
                                  const ModelConfig& model, const Plan& plan,
                                  int64_t max_row_tokens, int device_count) {
  RoundBuffersOptions options;
  options.plan = plan;
  options.layers = static_cast<int>(model.layer_count) + 1;
  options.micro_batches = static_cast<int>(RoundMicroBatches(spec));
  options.rows = spec.micro_batch_size();
  options.row_tokens = max_row_tokens;
  options.hidden_size = model.hidden_size;
  options.dtype = spec.dtype();
  options.boundary_tensors = 0;
  options.row_gradient =
      spec.adapter().present() ? RowGradient::kUnread : RowGradient::kRead;
  options.packed = spec.spec().packing;
  options.expert_layers = static_cast<int>(model.mixture.layers.count());
  options.experts_per_token = model.mixture.experts_per_token;
  options.expert_count = model.mixture.expert_count;
  options.contributions.dtype = ContributionDType(spec);
  options.contributions.units = ContributedUnits(model, spec.adapter());
  options.contributions.rounds = UpdatesInOnePass(spec) ? 2 : StepRounds(spec);
  options.contributions.slots_ahead = MostSlotsAhead(device_count);
  return options;
}

absl::StatusOr<Plan> InitialPlan(const ResolvedSpec& spec,
                                 const ModelConfig& model, const HostRoom& room,
                                 const DeviceRoom& device) {
  const int layers = static_cast<int>(model.layer_count) + 1;
  const bool own = spec.spec().plan.has_value();
  const TrainedModel trained = TrainedOf(spec, model);
  ASSIGN_OR_RETURN(
      const Plan stages,
      own ? ExplicitToPlan(spec, layers)
          : PlanFromCosts(CostModel(ActiveLayerBytes(trained)), trained,
                          room.device_count, device.bytes));
  const PlanLimits limits(
      LimitsOf(spec, model, spec.max_length(), room.device_count, device));
  const auto with = [&](const Saving& saving) {
    Plan plan = stages;
    SetSaving(saving, plan);
    // The planner knows weights and gradients; of long rows less of them fits
    // beside what computes them.
    return own || !device.with_libraries ? plan
                                         : limits.CutToFit(std::move(plan));
  };
  const auto need = [&](const Plan& plan) {
    return NeedOf(spec, model, plan, spec.max_length(), room).total();
  };
  const int asked = spec.spec().saved_inputs;
  Plan least;
  uint64_t least_bytes = std::numeric_limits<uint64_t>::max();
  for (const int every : SavedEveryTried(asked)) {
    Plan plan = with({every});
    const uint64_t bytes = need(plan);
    if (bytes <= room.host_bytes) {
      if (asked > 0 || every == 1) return plan;
      return with({every, FewestGroups([&](int groups) {
                     return need(with({every, groups})) <= room.host_bytes;
                   })});
    }
    if (bytes >= least_bytes) continue;
    least = std::move(plan);
    least_bytes = bytes;
  }
  return least;
}

absl::Status CheckWidths(const ResolvedSpec& spec, int device_count) {
  if (!spec.spec().plan.has_value()) return absl::OkStatus();
  const ExplicitPlan& text = *spec.spec().plan;
  RETURN_IF_ERROR(
      CheckDevices("forward_width", text.forward_width, device_count));
  return CheckDevices("backward_width", text.backward_width, device_count);
}

PlanLimitsOptions LimitsOf(const ResolvedSpec& spec, const ModelConfig& model,
                           int64_t max_row_tokens, int device_count,
                           const DeviceRoom& device) {
  PlanLimitsOptions options;
  options.model = TrainedOf(spec, model);
  options.buffers =
      BufferOptions(spec, model, {}, max_row_tokens, device_count);
  options.groups = RoundGroups(spec);
  options.device = device;
  options.working = {.batch = {.sequences = options.buffers.rows,
                               .tokens = options.buffers.row_tokens},
                     .dtype = options.model.dtype,
                     .backward = true,
                     .layer_recompute = spec.spec().gradient_checkpointing ==
                                        GradientCheckpointing::kLayer,
                     .packed = options.buffers.packed,
                     .head_token_chunk = spec.spec().head_token_chunk};
  return options;
}

// Compute weights of two updates, master and both moments.
constexpr uint64_t kMostKeptOfATensor = 5;

HostNeed NeedOf(const ResolvedSpec& spec, const ModelConfig& model,
                const Plan& plan, int64_t max_row_tokens,
                const HostRoom& room) {
  const AdapterConfig adapter = spec.adapter();
  HostNeed need;
  if (adapter.present()) {
    need.base_bytes = BaseWeightsBytes(model, spec.dtype());
  }
  need.state_bytes = TrainingStateBytes(StateOptions(0, spec, model));
  int64_t tensors = 0;
  for (const UnitSpec& unit : TrainingUnits(model, adapter)) {
    tensors += StoredTensorCount(unit);
  }
  // A checkpoint has five of each at most, with their names in its headers.
  need.table_bytes =
      static_cast<uint64_t>(tensors) * kMostKeptOfATensor * 512 + (1 << 16);
  need.table_bytes = std::max(need.table_bytes, EvalPromptBytes(spec, model));
  RoundBuffersOptions buffers =
      BufferOptions(spec, model, plan, max_row_tokens, room.device_count);
  need.contribution_bytes = ContributionBytes(plan, buffers.contributions);
  need.buffer_bytes = RoundBuffersBytes(buffers);
  // Pages begin and end where ranges do, and the arena has a header.
  constexpr uint64_t kAllowance = 1 << 20;
  const uint64_t taken = need.total() + kAllowance;
  const uint64_t left = room.host_bytes - std::min(room.host_bytes, taken);
  buffers.boundary_tensors = FittingTensors(
      static_cast<int64_t>(left / BoundaryTensorBytes(buffers)), plan,
      buffers.row_gradient, MostSlotsAhead(room.device_count));
  need.boundary_tensors = buffers.boundary_tensors;
  need.buffer_bytes = RoundBuffersBytes(buffers);
  buffers.boundary_tensors = BoundaryTensors(plan, buffers.row_gradient,
                                             MostSlotsAhead(room.device_count));
  need.wanted_buffer_bytes = RoundBuffersBytes(buffers);
  return need;
}

int64_t TotalSteps(const JobSpec& spec, int64_t rows) {
  if (spec.max_steps > 0) return spec.max_steps;
  const BatchOrder order(rows, spec.batch_size, 0);
  const auto steps = static_cast<int64_t>(std::ceil(
      spec.num_train_epochs * static_cast<double>(order.steps_per_epoch())));
  return std::max<int64_t>(steps, 1);
}

}  // namespace roundhouse
