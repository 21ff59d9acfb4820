// Engine: which weights a sample reads, and who goes first where memory is
// short.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/jobs/engine.h"
#include "server/jobs/job_needs.h"
#include "server/jobs/spec_error.h"

namespace roundhouse {
namespace {

constexpr char kJobPrefix[] = "job:";
// What rounding each of a job's allocations up to pages may add.
constexpr uint64_t kRoundingBytes = 64 << 10;

// A job has no checkpoint and no output.
absl::Status NoWeights(const JobRecord& job, const JobSpec& spec) {
  std::string why = "the job saves at its end";
  if (IsFinal(job.state)) {
    why = absl::StrCat("it ended ", JobStateName(job.state),
                       " before its first checkpoint");
  } else if (spec.save_steps > 0) {
    const int64_t last =
        spec.max_steps > 0 ? spec.max_steps : job.progress.total_steps;
    why = absl::StrCat(
        "its first checkpoint comes at step ",
        last > 0 ? std::min(spec.save_steps, last) : spec.save_steps);
  }
  return FieldError(
      absl::StatusCode::kFailedPrecondition, "ILLEGAL_STATE", "model",
      absl::StrCat("model: job ", job.id, " has no weights yet: ", why));
}

}  // namespace

absl::StatusOr<SampleSource> Engine::OpenJobSample(
    const std::string& name) const {
  const auto job = FindJob(name);
  if (!job.ok()) {
    if (!absl::IsNotFound(job.status())) return job.status();
    return FieldError(absl::StatusCode::kNotFound, "NOT_FOUND", "model",
                      absl::StrCat("model: ", job.status().message()));
  }
  ASSIGN_OR_RETURN(const ResolvedSpec resolved,
                   ResolvedSpec::FromJson(job->resolved));
  const JobSpec& spec = resolved.spec();
  const std::string path =
      job->output_path.empty() ? job->last_checkpoint_path : job->output_path;
  if (path.empty()) return NoWeights(*job, spec);
  ASSIGN_OR_RETURN(
      SampleSource source,
      OpenSampleSource(
          path, ComputeDtype(spec.dtype),
          [this](const std::string& field, const std::string& named,
                 PathKind kind) { return ResolvePath(field, named, kind); }));
  source.template_date = spec.template_date;
  return source;
}

absl::StatusOr<SampleSource> Engine::OpenSample(
    const std::string& model) const {
  if (absl::StartsWith(model, kJobPrefix)) {
    return OpenJobSample(model.substr(sizeof(kJobPrefix) - 1));
  }
  if (JobNumber(model).has_value()) return OpenJobSample(model);
  ASSIGN_OR_RETURN(const std::string path,
                   ResolvePath("model", model, PathKind::kDirectory));
  return OpenSampleSource(
      path, std::nullopt,
      [this](const std::string& field, const std::string& named,
             PathKind kind) { return ResolvePath(field, named, kind); });
}

absl::StatusOr<HostNeed> Engine::NeedOfSpec(const ResolvedSpec& spec,
                                            const ModelConfig& model) const {
  ASSIGN_OR_RETURN(const Plan plan,
                   InitialPlan(spec, model, pool_.device_count(),
                               options_.device_memory_bytes));
  return NeedOf(spec, model, plan, spec.spec().max_length);
}

absl::StatusOr<HostNeed> Engine::NeedOfJob(const std::string& id) const {
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  ASSIGN_OR_RETURN(const ResolvedSpec spec,
                   ResolvedSpec::FromJson(job.resolved));
  ASSIGN_OR_RETURN(const ModelDirectory model, CheckModel(spec.spec()));
  return NeedOfSpec(spec, model.config);
}

bool Engine::MakeRoom(const std::string& id) {
  if (!sampler_->holds_memory()) return true;
  const auto need = NeedOfJob(id);
  // Whatever is wrong with it, it fails as it starts.
  if (!need.ok()) return true;
  if (need->total() + kRoundingBytes <= arena_.largest_gap_bytes()) return true;
  sampler_->GiveWay([this] { StartNext(); });
  return false;
}

}  // namespace roundhouse
