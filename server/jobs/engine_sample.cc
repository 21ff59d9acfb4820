// Engine: which weights a sample reads, and who goes first where memory is
// short.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/jobs/engine.h"
#include "server/jobs/job_needs.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

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

absl::StatusOr<SampleSource> Engine::OpenSample(
    const std::string& model) const {
  ASSIGN_OR_RETURN(const NamedWeights found,
                   FindWeights("model", model, PathKind::kModel));
  const auto resolve = [this](const std::string& field, const std::string& path,
                              PathKind kind) {
    return ResolvePath(field, path, kind);
  };
  if (!found.job.has_value()) {
    return OpenSampleSource(found.path, std::nullopt, resolve);
  }
  ASSIGN_OR_RETURN(const ResolvedSpec resolved,
                   ResolvedSpec::FromJson(found.job->resolved));
  const JobSpec& spec = resolved.spec();
  const std::string& path =
      found.path.empty() ? found.job->last_checkpoint_path : found.path;
  if (path.empty()) return NoWeights(*found.job, spec);
  ASSIGN_OR_RETURN(SampleSource source,
                   OpenSampleSource(path, ComputeDtype(spec.dtype), resolve));
  source.template_date = spec.template_date;
  return source;
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
