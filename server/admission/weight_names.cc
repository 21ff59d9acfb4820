#include "server/admission/weight_names.h"

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "server/access/job_names.h"
#include "server/spec/data_files.h"
#include "server/spec/nearest_path.h"
#include "server/spec/spec_error.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

constexpr char kJobPrefix[] = "job:";

bool IsMissing(const absl::Status& status) {
  return ErrorReason(status) == FieldReason::kPathNotFound;
}

// The error as it is where nothing there is called alike.
absl::Status WithNearest(const DataRoots& roots, const std::string& path,
                         const absl::Status& missing) {
  // A pattern is spelt as it is meant.
  const bool pattern = path.find_first_of("*?[") != std::string::npos;
  const std::string nearest = pattern ? "" : NearestPath(roots, path);
  if (nearest.empty()) return missing;
  return RequestError(ErrorReason(missing), ErrorField(missing),
                      absl::StrCat(std::string(missing.message()),
                                   "; did you mean ", nearest, "?"));
}

absl::Status Missing(const std::string& field, absl::string_view what) {
  return FieldError(absl::StatusCode::kNotFound, FieldReason::kNotFound, field,
                    what);
}

}  // namespace

absl::StatusOr<std::string> WeightNames::ResolvePath(
    const std::string& field, const std::string& path, PathKind kind,
    const MayRead& may_read) const {
  if (!absl::StartsWith(path, kJobPrefix)) {
    if (kind == PathKind::kModel) {
      return ResolveModel(field, path, HubNeed::kWhole);
    }
    if (kind == PathKind::kModelConfig) {
      return ResolveModel(field, path, HubNeed::kConfig);
    }
    auto found = roots_.Resolve(field, path, kind);
    return IsMissing(found.status()) ? WithNearest(roots_, path, found.status())
                                     : found;
  }
  auto job = FindJob(path.substr(sizeof(kJobPrefix) - 1));
  if (job.ok()) {
    const absl::Status may = may_read(*job);
    if (!may.ok()) {
      return FieldError(may.code(), FieldReason::kPermissionDenied, field,
                        std::string(may.message()));
    }
  }
  const bool checkpoint = field == "resume_from_checkpoint";
  const std::string found = !job.ok()    ? ""
                            : checkpoint ? job->last_checkpoint_path
                                         : job->output_path;
  if (found.empty()) {
    return FieldError(
        FieldReason::kPathNotFound, field,
        absl::StrCat(path, ": ",
                     !job.ok()    ? std::string(job.status().message())
                     : checkpoint ? "the job has no checkpoint"
                                  : "the job has no output"));
  }
  return found;
}

absl::StatusOr<std::string> WeightNames::ResolveModel(const std::string& field,
                                                      const std::string& name,
                                                      HubNeed need) const {
  if (hub_.Contains(name)) return hub_.Resolve(field, name, need);
  auto found = roots_.Resolve(field, name, PathKind::kDirectory);
  if (!IsMissing(found.status())) return found;
  const absl::Status nearest = WithNearest(roots_, name, found.status());
  const auto hub_name = HubCache::ParseName(name);
  if (!hub_name.has_value()) return nearest;
  // "models/tiny" beside other models is no id on the hub.
  const std::string folder = name.substr(0, name.find('/'));
  if (roots_.Resolve(field, folder, PathKind::kDirectory).ok()) return nearest;
  const auto cached = hub_.Find(field, *hub_name, need);
  if (!IsMissing(cached.status())) return cached;
  if (nearest != found.status()) return nearest;
  return RequestError(
      FieldReason::kPathNotFound, field,
      absl::StrCat(std::string(found.status().message()), ", and ",
                   std::string(cached.status().message())));
}

PathResolver WeightNames::resolver() const {
  return [this](const std::string& field, const std::string& path,
                PathKind kind) { return ResolvePath(field, path, kind); };
}

void WeightNames::ResolvePaths(JobFile* file, const MayRead& may_read) const {
  JobSpec& spec = file->spec();
  const std::tuple<const char*, std::string*, PathKind> fields[] = {
      {"model_name_or_path", &spec.model_name_or_path, PathKind::kModel},
      {"resume_from_checkpoint", &spec.resume_from_checkpoint,
       PathKind::kDirectory},
      {"adapter_name_or_path", &spec.adapter_name_or_path,
       PathKind::kDirectory}};
  for (const auto& [field, path, kind] : fields) {
    if (path->empty()) continue;
    auto found = ResolvePath(field, *path, kind, may_read);
    if (found.ok()) {
      *path = *std::move(found);
    } else {
      path->clear();
      file->AddFaultOf(found.status());
    }
  }
  const PathResolver resolve = resolver();
  for (const auto& [field, paths] :
       {std::pair("dataset", &spec.dataset),
        std::pair("validation_dataset", &spec.validation_dataset)}) {
    auto found = FindDataFiles(resolve, roots_, field, *paths);
    if (found.ok()) {
      *paths = *std::move(found);
    } else {
      file->AddFaultOf(found.status());
    }
  }
  file->WarnOfSharedData();
}

absl::StatusOr<JobRecord> WeightNames::FindJob(const std::string& name) const {
  return roundhouse::FindJob(store_, name);
}

absl::StatusOr<NamedWeights> WeightNames::FindWeights(const std::string& field,
                                                      const std::string& name,
                                                      PathKind kind) const {
  const auto [id, step, must_be_job] = ParseWeightsName(name);
  auto job = FindJob(id);
  if (!job.ok()) {
    if (must_be_job || JobNumber(id).has_value()) {
      return Missing(field, job.status().message());
    }
    auto path = ResolvePath(field, name, kind);
    if (path.ok()) return NamedWeights{*std::move(path), std::nullopt};
    if (ErrorReason(path.status()) != FieldReason::kPathNotFound ||
        absl::StrContains(name, "/")) {
      return path.status();
    }
    const std::string why(path.status().message());
    return FieldError(FieldReason::kPathNotFound, field,
                      absl::StrCat("there is no job \"", name, "\", and ",
                                   absl::StripPrefix(why, field + ": ")));
  }
  if (!step.has_value()) return NamedWeights{job->output_path, *job};
  std::string path = CheckpointPath(paths_.Directory(*job), *step);
  if (IsDirectory(path)) {
    return NamedWeights{std::move(path), *job};
  }
  return Missing(field, absl::StrCat(job->id, " has no checkpoint-", *step,
                                     "; ", CheckpointsText(*job)));
}

std::string WeightNames::CheckpointsText(const JobRecord& job) const {
  const std::vector<int64_t> steps = ListCheckpointSteps(paths_.Directory(job));
  if (steps.empty()) return "it has no checkpoints";
  return absl::StrCat("it has checkpoint-",
                      absl::StrJoin(steps, ", checkpoint-"));
}

}  // namespace roundhouse
