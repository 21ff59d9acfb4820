// Engine: which directory a name of trained weights means.
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "server/jobs/engine.h"
#include "server/spec/spec_error.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

constexpr char kResourcePrefix[] = "projects/default/fineTuningJobs/";

absl::Status Missing(const std::string& field, absl::string_view what) {
  return FieldError(absl::StatusCode::kNotFound, "NOT_FOUND", field,
                    absl::StrCat(field, ": ", what));
}

struct JobPart {
  std::string job;
  std::optional<int64_t> step;
};

// "job-7/checkpoint-40", and the API's job-7/checkpoints/40.
JobPart SplitName(const std::string& name) {
  for (const char* between : {"/checkpoint-", "/checkpoints/"}) {
    const size_t at = name.find(between);
    int64_t step = 0;
    if (at != std::string::npos &&
        absl::SimpleAtoi(name.substr(at + std::string(between).size()),
                         &step)) {
      return {name.substr(0, at), step};
    }
  }
  return {name, std::nullopt};
}

}  // namespace

absl::StatusOr<Engine::NamedWeights> Engine::FindWeights(
    const std::string& field, const std::string& name, PathKind kind) const {
  std::string rest = name;
  bool must_be_job = false;
  for (const char* prefix : {"job:", kResourcePrefix}) {
    if (!absl::StartsWith(rest, prefix)) continue;
    rest = rest.substr(std::string(prefix).size());
    must_be_job = true;
  }
  const auto [id, step] = SplitName(rest);
  auto job = FindJob(id);
  if (!job.ok()) {
    if (must_be_job || JobNumber(id).has_value()) {
      return Missing(field, job.status().message());
    }
    auto path = ResolvePath(field, name, kind);
    if (path.ok()) return NamedWeights{*std::move(path), std::nullopt};
    if (ErrorReason(path.status()) != "PATH_NOT_FOUND" ||
        absl::StrContains(name, "/")) {
      return path.status();
    }
    const std::string why(path.status().message());
    return FieldError(
        "PATH_NOT_FOUND", field,
        absl::StrCat(field, ": there is no job \"", name, "\", and ",
                     absl::StripPrefix(why, field + ": ")));
  }
  if (!step.has_value()) return NamedWeights{job->output_path, *job};
  std::string path = CheckpointPath(JobDirectory(*job), *step);
  if (IsDirectory(path)) {
    return NamedWeights{std::move(path), *job};
  }
  return Missing(field, absl::StrCat(job->id, " has no checkpoint-", *step,
                                     "; ", CheckpointsText(*job)));
}

std::string Engine::CheckpointsText(const JobRecord& job) const {
  const std::vector<int64_t> steps = ListCheckpointSteps(JobDirectory(job));
  if (steps.empty()) return "it has no checkpoints";
  return absl::StrCat("it has checkpoint-",
                      absl::StrJoin(steps, ", checkpoint-"));
}

}  // namespace roundhouse
