#include "server/admission/job_fit.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/byte_text.h"
#include "base/status.h"
#include "server/planning/disk_need.h"
#include "server/planning/plan_costs.h"
#include "server/spec/model_limits.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

std::string FrozenText(const HostNeed& need) {
  return need.base_bytes == 0
             ? ""
             : absl::StrCat(ByteText(need.base_bytes), " of the base model, ");
}

// What more could be left out of the activations.
std::string KeptText(const ResolvedSpec& spec, const Plan& plan) {
  if (spec.spec().saved_inputs == 1) {
    return "; saved_inputs: auto takes less";
  }
  const InputCounts inputs = CountInputs(plan);
  return inputs.saved == inputs.all
             ? ""
             : absl::StrCat(" with ", inputs.saved, " of ", inputs.all,
                            " stages' inputs saved");
}

}  // namespace

PlanLimits JobFit::LimitsOfJob(const ResolvedSpec& spec,
                               const ModelConfig& model) const {
  return PlanLimits(LimitsOf(spec, model, spec.max_length(), room_.device_count,
                             room_.device));
}

ResolvedSpec JobFit::ResolveToFit(JobSpec spec,
                                  const ModelDirectory& directory) const {
  const ModelConfig& model = directory.config;
  const int devices = room_.device_count;
  const SpecDefaults usual = DefaultsOf(directory, room_.device);
  ResolvedSpec resolved = ResolvedSpec::Resolve(spec, devices, usual);
  if (spec.gradient_groups.has_value()) return resolved;
  while (resolved.gradient_groups() > 1) {
    const auto plan = InitialPlan(resolved, model, HostRoomOf(), room_.device);
    if (!plan.ok()) break;  // at any number; the error is CheckPlan's
    if (LimitsOfJob(resolved, model).CheckSlots(*plan).ok()) break;
    spec.gradient_groups = resolved.gradient_groups() / 2;
    resolved = ResolvedSpec::Resolve(spec, devices, usual);
  }
  return resolved;
}

absl::StatusOr<Plan> JobFit::CheckPlan(const ResolvedSpec& spec,
                                       const ModelConfig& model) const {
  auto plan = InitialPlan(spec, model, HostRoomOf(), room_.device);
  absl::Status status = plan.status();
  if (status.ok()) {
    RETURN_IF_ERROR(CheckWidths(spec, room_.device_count));
    status = LimitsOfJob(spec, model).CheckSlots(*plan);
  }
  if (absl::IsResourceExhausted(status)) {
    const char* const field =
        spec.spec().plan.has_value() ? "plan" : "model_name_or_path";
    return FieldError(absl::StatusCode::kResourceExhausted,
                      FieldReason::kDeviceMemory, field,
                      std::string(status.message()));
  }
  if (plan.ok() && !status.ok()) {
    return FieldError(FieldReason::kInvalidValue, "plan",
                      std::string(status.message()));
  }
  RETURN_IF_ERROR(status);
  const int64_t most = MaxRoundMicroBatches(*plan);
  if (spec.micro_batches_per_round() > most &&
      spec.spec().batch_size > most * spec.micro_batch_size()) {
    return FieldError(
        FieldReason::kInvalidValue, "micro_batches_per_round",
        absl::StrCat(spec.micro_batches_per_round(),
                     "; with this plan a round has at most ", most));
  }
  return plan;
}

absl::Status JobFit::CheckMemory(const ResolvedSpec& spec,
                                 const ModelConfig& model, const Plan& plan,
                                 JobNeeds* needs) const {
  const HostNeed need =
      NeedOf(spec, model, plan, spec.max_length(), HostRoomOf());
  needs->host_base_bytes = static_cast<int64_t>(need.base_bytes);
  const uint64_t state_bytes = need.state_bytes + need.contribution_bytes;
  needs->host_state_bytes = static_cast<int64_t>(state_bytes);
  needs->host_buffer_bytes = static_cast<int64_t>(need.buffer_bytes);
  needs->host_wanted_buffer_bytes =
      static_cast<int64_t>(need.wanted_buffer_bytes);
  const InputCounts inputs = CountInputs(plan);
  needs->backward_inputs = inputs.all;
  needs->saved_inputs = inputs.saved;
  needs->host_table_bytes = static_cast<int64_t>(need.table_bytes);
  needs->host_limit_bytes = static_cast<int64_t>(room_.host_bytes);
  needs->device_slot_bytes =
      static_cast<int64_t>(LimitsOfJob(spec, model).LargestSlotBytes(plan));
  needs->device_limit_bytes = static_cast<int64_t>(room_.device.bytes);
  if (need.total() <= room_.host_bytes) return absl::OkStatus();
  return FieldError(
      absl::StatusCode::kResourceExhausted, FieldReason::kHostMemory,
      "model_name_or_path",
      absl::StrCat("the job needs ", ByteText(need.total()),
                   " of host memory (", FrozenText(need), ByteText(state_bytes),
                   " of training state, ", ByteText(need.buffer_bytes),
                   " of activations and tokens", KeptText(spec, plan),
                   "), the limit is ", ByteText(room_.host_bytes),
                   "; method: lora, a smaller max_length or a smaller model "
                   "need less"));
}

absl::Status JobFit::CheckFreeDisk(const ResolvedSpec& spec,
                                   const ModelConfig& model, int64_t start_step,
                                   JobNeeds* needs) const {
  const DiskNeed need = DiskNeedOf(spec, model, start_step);
  std::error_code error;
  const auto space = std::filesystem::space(room_.state_dir, error);
  if (error) {
    return absl::InternalError(
        absl::StrCat("free disk of ", room_.state_dir, ": ", error.message()));
  }
  needs->checkpoint_bytes = static_cast<int64_t>(need.checkpoint_bytes);
  needs->checkpoint_count = need.checkpoint_count;
  needs->export_bytes = static_cast<int64_t>(need.export_bytes);
  needs->disk_bytes = static_cast<int64_t>(need.total_bytes());
  needs->disk_free_bytes = static_cast<int64_t>(space.available);
  needs->disk_path = room_.state_dir;
  return CheckDisk(need, space.available, room_.state_dir);
}

absl::StatusOr<HostNeed> JobFit::NeedOfSpec(const ResolvedSpec& spec,
                                            const ModelConfig& model) const {
  ASSIGN_OR_RETURN(const Plan plan,
                   InitialPlan(spec, model, HostRoomOf(), room_.device));
  return NeedOf(spec, model, plan, spec.max_length(), HostRoomOf());
}

}  // namespace roundhouse
