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
#include "server/weights/output_owner.h"

namespace roundhouse {
namespace {

constexpr char kJobPrefix[] = "job:";

bool IsMissing(const absl::Status& status) {
  return ErrorReason(status) == FieldReason::kPathNotFound;
}

// The error as it is where nothing there is called alike.  What lies in the
// server's own folders is not told, but to admins.
absl::Status WithNearest(const DataRoots& roots, const std::string& path,
                         const NameUser& user, const absl::Status& missing) {
  // A pattern is spelt as it is meant.
  const bool pattern = path.find_first_of("*?[") != std::string::npos;
  const MayUseRoot may = RootsOf(user.caller, user.role);
  const MayUseRoot told = [&](const RootOwner& owner) {
    return may(owner) &&
           (user.caller.admin || owner.kind != RootOwner::Kind::kServer);
  };
  const std::string nearest = pattern ? "" : NearestPath(roots, path, told);
  if (nearest.empty()) return missing;
  return RequestError(ErrorReason(missing), ErrorField(missing),
                      absl::StrCat(std::string(missing.message()),
                                   "; did you mean ", nearest, "?"));
}

absl::Status Missing(const std::string& field, absl::string_view what) {
  return FieldError(absl::StatusCode::kNotFound, FieldReason::kNotFound, field,
                    what);
}

absl::Status Refused(const std::string& field, const std::string& why) {
  return FieldError(absl::StatusCode::kPermissionDenied,
                    FieldReason::kPermissionDenied, field, why);
}

}  // namespace

absl::Status WeightNames::MayUse(const std::string& field, const JobRecord& job,
                                 const NameUser& user) const {
  const Role has = user.caller.RoleIn(job.project);
  if (has >= user.role) return absl::OkStatus();
  return Refused(field,
                 has == Role::kNone
                     ? absl::StrCat(job.id, " is in project ", job.project,
                                    ", in which you have no role")
                     : absl::StrCat(job.id, " is in project ", job.project,
                                    ": this takes a ", RoleName(user.role),
                                    ", and you are a ", RoleName(has)));
}

absl::StatusOr<OutputMark> WeightNames::OwnerOf(const std::string& path) const {
  const auto place = roots_.OwnPlaceOf(path);
  if (!place.has_value() || place->first.empty()) return OutputMark();
  if (uploads_.LieIn(place->root)) {
    return OutputMark{.project = uploads_.ProjectOf(place->first)};
  }
  OutputMark mark{.job_uid = place->first};
  if (place->root != paths_.jobs()) {
    mark = ReadOutputMark(absl::StrCat(place->root, "/", place->first));
  }
  if (mark.job_uid.empty()) return mark;
  ASSIGN_OR_RETURN(const auto id, store_.FindUid(mark.job_uid));
  // A result may stay when its job is deleted, and says whose it is.
  const OutputMark kept{.project = mark.project};
  if (!id.has_value()) return kept;
  const auto job = store_.Get(*id);
  if (absl::IsNotFound(job.status())) return kept;
  RETURN_IF_ERROR(job.status());
  return OutputMark{.job_uid = job->uid, .project = job->project};
}

absl::Status WeightNames::MayUsePath(const std::string& field,
                                     const std::string& path,
                                     const NameUser& user) const {
  if (user.caller.admin || !roots_.OwnPlaceOf(path).has_value()) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const OutputMark mark, OwnerOf(path));
  const Caller& caller = user.caller;
  if (mark.project.empty()) {
    const bool his = !mark.user.empty() && (mark.user == caller.owner() ||
                                            mark.user == caller.principal);
    return his ? absl::OkStatus() : absl::NotFoundError("");
  }
  const Role has = caller.RoleIn(mark.project);
  if (has >= user.role) return absl::OkStatus();
  if (has == Role::kNone) return absl::NotFoundError("");
  return Refused(field, absl::StrCat("\"", path, "\" is project ", mark.project,
                                     "'s: this takes a ", RoleName(user.role),
                                     ", and you are a ", RoleName(has)));
}

absl::StatusOr<std::string> WeightNames::ResolvePath(
    const std::string& field, const std::string& path, PathKind kind,
    const NameUser& user) const {
  if (absl::StartsWith(path, kJobPrefix)) {
    return ResolveJob(field, path, user);
  }
  ASSIGN_OR_RETURN(std::optional<std::string> upload,
                   uploads_.Resolve(field, path, kind, user));
  if (upload.has_value()) return *std::move(upload);
  return Resolve(field, path, kind, user);
}

absl::StatusOr<std::string> WeightNames::ResolveBelow(
    const std::string& field, const std::string& path, PathKind kind,
    const NameUser& user) const {
  const MayUseRoot roots = RootsOf(user.caller, user.role);
  const auto found = roots_.Resolve(field, path, kind, roots);
  absl::StatusOr<std::string> there = found;
  if (ErrorReason(found.status()) == FieldReason::kInvalidValue) {
    there = roots_.Resolve(
        field, path,
        kind == PathKind::kFile ? PathKind::kDirectory : PathKind::kFile,
        roots);
  }
  if (!there.ok()) return found;
  const absl::Status may = MayUsePath(field, *there, user);
  if (absl::IsNotFound(may)) return roots_.NotThere(field, path, roots);
  RETURN_IF_ERROR(may);
  return found;
}

absl::StatusOr<std::string> WeightNames::Resolve(const std::string& field,
                                                 const std::string& path,
                                                 PathKind kind,
                                                 const NameUser& user) const {
  if (kind == PathKind::kModel) {
    return ResolveModel(field, path, HubNeed::kWhole, user);
  }
  if (kind == PathKind::kModelConfig) {
    return ResolveModel(field, path, HubNeed::kConfig, user);
  }
  auto found = ResolveBelow(field, path, kind, user);
  return IsMissing(found.status())
             ? WithNearest(roots_, path, user, found.status())
             : found;
}

absl::StatusOr<std::string> WeightNames::ResolveJob(
    const std::string& field, const std::string& path,
    const NameUser& user) const {
  auto job = FindJobFor(path.substr(sizeof(kJobPrefix) - 1), user);
  if (job.ok()) RETURN_IF_ERROR(MayUse(field, *job, user));
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

absl::StatusOr<std::string> WeightNames::ResolveModel(
    const std::string& field, const std::string& name, HubNeed need,
    const NameUser& user) const {
  if (hub_.Contains(name)) {
    RETURN_IF_ERROR(
        ResolveBelow(field, name, PathKind::kDirectory, user).status());
    ASSIGN_OR_RETURN(const std::string cached, hub_.Resolve(field, name, need));
    return ResolveBelow(field, cached, PathKind::kDirectory, user);
  }
  auto found = ResolveBelow(field, name, PathKind::kDirectory, user);
  if (!IsMissing(found.status())) return found;
  const absl::Status nearest = WithNearest(roots_, name, user, found.status());
  const auto hub_name = HubCache::ParseName(name);
  if (!hub_name.has_value()) return nearest;
  // "models/tiny" beside other models is no id on the hub.
  const std::string folder = name.substr(0, name.find('/'));
  if (ResolveBelow(field, folder, PathKind::kDirectory, user).ok()) {
    return nearest;
  }
  // A folder of the cache may be a project's.
  const auto cached =
      hub_.Find(field, *hub_name, need, [&](const std::string& there) {
        return ResolveBelow(field, there, PathKind::kDirectory, user).ok();
      });
  if (cached.ok()) {
    return ResolveBelow(field, *cached, PathKind::kDirectory, user);
  }
  if (!IsMissing(cached.status())) return cached;
  if (nearest != found.status()) return nearest;
  return RequestError(
      FieldReason::kPathNotFound, field,
      absl::StrCat(std::string(found.status().message()), ", and ",
                   std::string(cached.status().message())));
}

PathResolver WeightNames::resolver(const NameUser& user) const {
  return [this, user](const std::string& field, const std::string& path,
                      PathKind kind) {
    return ResolvePath(field, path, kind, user);
  };
}

void WeightNames::ResolvePaths(JobFile* file, const NameUser& user) const {
  JobSpec& spec = file->spec();
  const std::tuple<const char*, std::string*, PathKind> fields[] = {
      {"model_name_or_path", &spec.model_name_or_path, PathKind::kModel},
      {"resume_from_checkpoint", &spec.resume_from_checkpoint,
       PathKind::kDirectory},
      {"adapter_name_or_path", &spec.adapter_name_or_path,
       PathKind::kDirectory}};
  for (const auto& [field, path, kind] : fields) {
    if (path->empty()) continue;
    auto found = ResolvePath(field, *path, kind, user);
    if (found.ok()) {
      *path = *std::move(found);
    } else {
      path->clear();
      file->AddFaultOf(found.status());
    }
  }
  const PathResolver resolve = resolver(user);
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

absl::StatusOr<JobRecord> WeightNames::FindJobFor(const std::string& name,
                                                  const NameUser& user) const {
  auto job = FindJob(name);
  const bool hidden = job.ok() && !JobNumber(name).has_value() &&
                      user.caller.RoleIn(job->project) == Role::kNone;
  return hidden ? NoSuchJob(name) : std::move(job);
}

absl::StatusOr<NamedWeights> WeightNames::FindWeights(
    const std::string& field, const std::string& name, PathKind kind,
    const NameUser& user) const {
  const WeightsName parsed = ParseWeightsName(name);
  const bool is_job = parsed.must_be_job || JobNumber(parsed.job).has_value();
  auto job = FindJobFor(parsed.job, user);
  if (job.ok() && !parsed.project.empty() && parsed.project != job->project) {
    job = absl::NotFoundError(absl::StrCat("there is no job \"", parsed.job,
                                           "\" in project ", parsed.project));
  }
  const absl::Status may =
      job.ok() ? MayUse(field, *job, user) : absl::OkStatus();
  if (is_job && !job.ok()) return Missing(field, job.status().message());
  if (is_job) RETURN_IF_ERROR(may);
  // Somebody else's output may have the name of a model of his.
  if (!job.ok() || !may.ok()) return FindPath(field, name, kind, user);
  if (!parsed.step.has_value()) return NamedWeights{job->output_path, *job};
  std::string path = CheckpointPath(paths_.Directory(*job), *parsed.step);
  if (IsDirectory(path)) return NamedWeights{std::move(path), *job};
  return Missing(
      field, absl::StrCat(job->id, " has no checkpoint-", *parsed.step, "; ",
                          CheckpointsText(*job)));
}

absl::StatusOr<NamedWeights> WeightNames::FindPath(const std::string& field,
                                                   const std::string& name,
                                                   PathKind kind,
                                                   const NameUser& user) const {
  auto path = ResolvePath(field, name, kind, user);
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

std::string WeightNames::CheckpointsText(const JobRecord& job) const {
  const std::vector<int64_t> steps = ListCheckpointSteps(paths_.Directory(job));
  if (steps.empty()) return "it has no checkpoints";
  return absl::StrCat("it has checkpoint-",
                      absl::StrJoin(steps, ", checkpoint-"));
}

}  // namespace roundhouse
