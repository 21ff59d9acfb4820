#include "server/admission/sample_names.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/access/accounts.h"
#include "server/planning/job_needs.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

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
  return FieldError(absl::StatusCode::kFailedPrecondition,
                    FieldReason::kIllegalState, "model",
                    absl::StrCat("job ", job.id, " has no weights yet: ", why));
}

// Whose share a sample takes that is of no job.
std::string ProjectOf(const Caller& caller) {
  const auto meant = ProjectMeant(caller, "");
  return meant.ok() ? *meant : caller.projects.begin()->first;
}

}  // namespace

absl::StatusOr<SampleSource> OpenNamedSample(const WeightNames& names,
                                             const FileOpener& files,
                                             const std::string& model,
                                             const NameUser& user) {
  ASSIGN_OR_RETURN(const NamedWeights found,
                   names.FindWeights("model", model, PathKind::kModel, user));
  const PathResolver resolve = names.resolver(user);
  if (!found.job.has_value()) {
    ASSIGN_OR_RETURN(
        SampleSource source,
        OpenSampleSource(found.path, std::nullopt, files, resolve));
    source.project = ProjectOf(user.caller);
    return source;
  }
  ASSIGN_OR_RETURN(const ResolvedSpec resolved,
                   ResolvedSpec::FromJson(found.job->resolved));
  const JobSpec& spec = resolved.spec();
  const std::string& path =
      found.path.empty() ? found.job->last_checkpoint_path : found.path;
  if (path.empty()) return NoWeights(*found.job, spec);
  ASSIGN_OR_RETURN(SampleSource source,
                   OpenSampleSource(path, resolved.dtype(), files, resolve));
  source.template_date = spec.template_date;
  source.project = found.job->project;
  return source;
}

}  // namespace roundhouse
