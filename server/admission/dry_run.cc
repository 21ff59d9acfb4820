#include "server/admission/dry_run.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/model/parameters.h"
#include "base/status.h"
#include "server/access/job_names.h"
#include "server/planning/step_times.h"

namespace roundhouse {
namespace {

// The newest, in which one that trained in the same way is looked for.
constexpr int kJobsLookedAt = 200;

// Steps of a job that reads the same data as `like` did; 0: not known.
int64_t StepsLike(const JobSpec& spec, const JobRecord& like) {
  if (spec.max_steps > 0) return spec.max_steps;
  // Packed rows are counted when they are packed.
  if (spec.packing || !like.dataset.has_value()) return 0;
  return TotalSteps(spec, like.dataset->train_sequences);
}

// With the number of rows, which is not known yet, the job's log says which.
std::string ResumeWarning(const AdmittedJob& job) {
  const JobSpec& spec = job.spec.spec();
  const auto& manifest = job.resumed;
  if (!manifest.has_value() || manifest->step == 0) return "";
  const auto resolved = ResolvedSpec::FromJson(manifest->resolved_spec);
  if (!resolved.ok() || resolved->spec().packing != spec.packing) return "";
  const JobSpec& then = resolved->spec();
  if (then.batch_size == spec.batch_size && then.seed == spec.seed) return "";
  const auto order = [](const JobSpec& job) {
    return absl::StrCat("batch_size ", job.batch_size, " and seed ", job.seed);
  };
  return absl::StrCat(
      "resume_from_checkpoint: its job had ", order(then), ", this one has ",
      order(spec),
      ": rows are taken in another order, so that some may be trained on once "
      "more than both jobs say, others once less; the job's log says which");
}

absl::Status MeasureSteps(const AdmittedJob& job, const JobStore& store,
                          const JobPaths& paths, int device_count,
                          const Caller& caller, JobNeeds* needs) {
  const JobSpec& spec = job.spec.spec();
  needs->steps = std::max<int64_t>(0, spec.max_steps - job.start_step());
  const std::string resolved = job.spec.ToJson();
  ASSIGN_OR_RETURN(const JobPage page,
                   store.List({}, std::nullopt, kJobsLookedAt));
  const auto devices = static_cast<size_t>(device_count);
  for (const JobRecord& listed : page.jobs) {
    if (caller.RoleIn(listed.project) < Role::kViewer ||
        listed.progress.step < kFewestMeasuredSteps ||
        listed.progress.device_use.size() != devices) {
      continue;
    }
    // A list has no specs.
    ASSIGN_OR_RETURN(const JobRecord other, store.Get(listed.id));
    if (!SameStepWork(resolved, other.resolved)) continue;
    const auto seconds =
        MeasuredStepSeconds(paths.Directory(other) + "/metrics.jsonl");
    if (!seconds.has_value()) continue;
    needs->step_seconds = seconds;
    needs->measured_in = JobName(other.project, other.id);
    needs->steps =
        std::max<int64_t>(0, StepsLike(spec, other) - job.start_step());
    break;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DryRunResult> DryRunOf(const AdmittedJob& checked,
                                      const std::string& text,
                                      const JobStore& store,
                                      const JobPaths& paths, int device_count,
                                      const Caller& caller) {
  const JobSpec& spec = checked.spec.spec();
  DryRunResult dry;
  dry.job.text = text;
  dry.job.resolved = checked.spec.ToJson();
  dry.job.output_name = spec.output_name;
  dry.needs = checked.needs;
  dry.warnings = checked.warnings;
  const std::string resumed = ResumeWarning(checked);
  if (!resumed.empty()) dry.warnings.push_back(resumed);
  dry.has_eval_prompts = !spec.eval_prompts.empty();
  const AdapterConfig adapter = checked.spec.adapter();
  const int64_t trained =
      TrainableParameterCount(checked.model.config, adapter);
  dry.needs.trainable_parameters = trained;
  dry.needs.parameters = adapter.present()
                             ? ParameterCount(checked.model.config) + trained
                             : trained;
  RETURN_IF_ERROR(
      MeasureSteps(checked, store, paths, device_count, caller, &dry.needs));
  dry.first_sequence = {.dataset = spec.dataset,
                        .model_name_or_path = spec.model_name_or_path,
                        .max_length = checked.spec.max_length(),
                        .truncation = TruncationName(spec.truncation),
                        .packing = spec.packing,
                        .seed = spec.seed,
                        .template_date = spec.template_date,
                        .format = DatasetFormatName(spec.dataset_format),
                        .columns = spec.dataset_columns,
                        .max_samples = spec.max_samples,
                        .validation_split = spec.validation_split,
                        .validation_dataset = spec.validation_dataset,
                        .with_validation = HasValidation(spec),
                        .samples = 1};
  return dry;
}

}  // namespace roundhouse
