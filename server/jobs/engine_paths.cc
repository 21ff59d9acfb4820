// Engine: what the paths of a job file and of questions mean.  Any thread;
// reads files only.
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/jobs/engine.h"
#include "server/spec/data_files.h"
#include "server/spec/job_file.h"
#include "server/spec/nearest_path.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

constexpr char kJobPrefix[] = "job:";

bool IsMissing(const absl::Status& status) {
  return ErrorReason(status) == "PATH_NOT_FOUND";
}

// The error as it is where nothing there is called alike.
absl::Status WithNearest(const DataRoots& roots, const std::string& path,
                         const absl::Status& missing) {
  // A pattern is spelt as it is meant.
  const bool pattern = path.find_first_of("*?[") != std::string::npos;
  const std::string nearest = pattern ? "" : NearestPath(roots, path);
  if (nearest.empty()) return missing;
  return FieldError(ErrorReason(missing), ErrorField(missing),
                    absl::StrCat(std::string(missing.message()),
                                 "; did you mean ", nearest, "?"));
}

}  // namespace

absl::StatusOr<std::string> Engine::ResolvePath(const std::string& field,
                                                const std::string& path,
                                                PathKind kind) const {
  if (!absl::StartsWith(path, kJobPrefix)) {
    if (kind == PathKind::kModel) {
      return ResolveModel(field, path, HubNeed::kWhole);
    }
    if (kind == PathKind::kModelConfig) {
      return ResolveModel(field, path, HubNeed::kConfig);
    }
    auto found = roots_->Resolve(field, path, kind);
    return IsMissing(found.status())
               ? WithNearest(*roots_, path, found.status())
               : found;
  }
  auto job = FindJob(path.substr(sizeof(kJobPrefix) - 1));
  const bool checkpoint = field == "resume_from_checkpoint";
  const std::string found = !job.ok()    ? ""
                            : checkpoint ? job->last_checkpoint_path
                                         : job->output_path;
  if (found.empty()) {
    return FieldError(
        "PATH_NOT_FOUND", field,
        absl::StrCat(field, ": ", path, ": ",
                     !job.ok()    ? std::string(job.status().message())
                     : checkpoint ? "the job has no checkpoint"
                                  : "the job has no output"));
  }
  return found;
}

absl::StatusOr<std::string> Engine::ResolveModel(const std::string& field,
                                                 const std::string& name,
                                                 HubNeed need) const {
  if (hub_.Contains(name)) return hub_.Resolve(field, name, need);
  auto found = roots_->Resolve(field, name, PathKind::kDirectory);
  if (!IsMissing(found.status())) return found;
  const absl::Status nearest = WithNearest(*roots_, name, found.status());
  const auto hub_name = HubCache::ParseName(name);
  if (!hub_name.has_value()) return nearest;
  // "models/tiny" beside other models is no id on the hub.
  const std::string folder = name.substr(0, name.find('/'));
  if (roots_->Resolve(field, folder, PathKind::kDirectory).ok()) return nearest;
  const auto cached = hub_.Find(field, *hub_name, need);
  if (!IsMissing(cached.status())) return cached;
  if (nearest != found.status()) return nearest;
  return FieldError(
      "PATH_NOT_FOUND", field,
      absl::StrCat(std::string(found.status().message()), ", and ",
                   std::string(cached.status().message())));
}

void Engine::ResolvePaths(JobFile* file) const {
  JobSpec& spec = file->spec();
  const std::tuple<const char*, std::string*, PathKind> fields[] = {
      {"model_name_or_path", &spec.model_name_or_path, PathKind::kModel},
      {"resume_from_checkpoint", &spec.resume_from_checkpoint,
       PathKind::kDirectory},
      {"adapter_name_or_path", &spec.adapter_name_or_path,
       PathKind::kDirectory}};
  for (const auto& [field, path, kind] : fields) {
    if (path->empty()) continue;
    auto found = ResolvePath(field, *path, kind);
    if (found.ok()) {
      *path = *std::move(found);
    } else {
      path->clear();
      file->AddFaultOf(found.status());
    }
  }
  const PathResolver resolve = [this](const std::string& field,
                                      const std::string& path, PathKind kind) {
    return ResolvePath(field, path, kind);
  };
  for (const auto& [field, paths] :
       {std::pair("dataset", &spec.dataset),
        std::pair("validation_dataset", &spec.validation_dataset)}) {
    auto found = FindDataFiles(resolve, *roots_, field, *paths);
    if (found.ok()) {
      *paths = *std::move(found);
    } else {
      file->AddFaultOf(found.status());
    }
  }
  file->WarnOfSharedData();
}

}  // namespace roundhouse
