#include "server/admission/export_names.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "base/upload_names.h"
#include "server/spec/spec_error.h"
#include "server/weights/adapter_files.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

absl::Status Refused(const char* field, const std::string& why) {
  return FieldError(FieldReason::kInvalidValue, field, why);
}

bool IsOutputName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxOutputNameBytes &&
         name[0] != '.' && !absl::StartsWith(name, "tmp-") &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

// Hashes all of a checkpoint that an export may read.
absl::Status CheckExported(const FileOpener& files, const std::string& path) {
  ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                   ReadCheckpoint(files, path));
  for (const CheckpointShard& file : manifest.shards) {
    // Most of its bytes, and of no use to whoever gets the export.
    if (absl::StartsWith(file.file, "optimizer")) continue;
    RETURN_IF_ERROR(VerifyCheckpointFile(files, path, file));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NamedWeights> ExportNames::Source(const std::string& source,
                                                 const NameUser& user) const {
  ASSIGN_OR_RETURN(
      NamedWeights found,
      names_.FindWeights("source", source, PathKind::kDirectory, user));
  if (!found.path.empty()) return found;
  return absl::FailedPreconditionError(
      absl::StrCat(found.job->id, " is ", JobStateName(found.job->state),
                   " and has no output; ", names_.CheckpointsText(*found.job)));
}

absl::StatusOr<std::string> ExportNames::Output(const std::string& output,
                                                const NameUser& user) const {
  // As Create has them: jobs, then outputs, after the data roots.
  const std::string outputs = roots_.roots().back();
  const fs::path given(output);
  const std::string name = given.filename().string();
  if (!IsOutputName(name)) {
    return Refused(
        "output",
        absl::StrCat("\"", output, "\" does not end in a name of 1 to ",
                     kMaxOutputNameBytes,
                     " of letters, digits, '-', '_', '.', which begins "
                     "neither with '.' nor with tmp-"));
  }
  std::string parent = outputs;
  if (given.has_parent_path()) {
    ASSIGN_OR_RETURN(parent, OutputFolder(given.parent_path().string(), user));
  }
  const std::string path = absl::StrCat(parent == "/" ? "" : parent, "/", name);
  std::error_code error;
  const fs::file_type there = fs::symlink_status(path, error).type();
  if (there == fs::file_type::none) {
    return Refused("output", absl::StrCat(path, ": ", error.message()));
  }
  if (there != fs::file_type::not_found) {
    return FieldError(absl::StatusCode::kAlreadyExists,
                      FieldReason::kInvalidValue, "output",
                      absl::StrCat(path, ": is there already"));
  }
  RETURN_IF_ERROR(CheckOutputIn(parent, name));
  return path;
}

absl::StatusOr<std::string> ExportNames::OutputFolder(
    const std::string& parent, const NameUser& user) const {
  const auto found = roots_.Resolve("output", parent, PathKind::kDirectory,
                                    RootsOf(user.caller, user.role));
  if (ErrorReason(found.status()) == FieldReason::kPathNotFound) {
    return Refused(
        "output",
        absl::StrCat("the folder ",
                     absl::StripPrefix(found.status().message(), "output: "),
                     "; make it first"));
  }
  RETURN_IF_ERROR(found.status());
  const auto folder = roots_.OpenDirectory(*found);
  if (!folder.ok()) {
    return Refused("output", std::string(folder.status().message()));
  }
  return folder->path;
}

absl::Status ExportNames::CheckOutputIn(const std::string& parent,
                                        const std::string& name) const {
  const std::string outputs = roots_.roots().back();
  const std::string state = fs::path(outputs).parent_path().string();
  if (parent == outputs) {
    RETURN_IF_ERROR(checker_.CheckOutputName(name));
  } else if (absl::StartsWith(parent + "/", state + "/")) {
    return Refused("output", absl::StrCat(parent, " is the server's own"));
  }
  if (access(parent.c_str(), W_OK) != 0) {
    return Refused("output",
                   absl::StrCat(parent, " can't be written by the server"));
  }
  return absl::OkStatus();
}

absl::StatusOr<OutputMark> ExportNames::MarkOf(const NamedWeights& source,
                                               const NameUser& user) const {
  if (source.job.has_value()) return OutputMark{.project = source.job->project};
  ASSIGN_OR_RETURN(OutputMark mark, names_.OwnerOf(source.path));
  mark.job_uid.clear();  // an export takes no job's place
  if (mark.project.empty()) mark.user = user.caller.owner();
  return mark;
}

absl::StatusOr<ExportPlan> ExportNames::Plan(
    const ExportRequest& request) const {
  const NameUser user = {request.caller};
  ASSIGN_OR_RETURN(const NamedWeights source, Source(request.source, user));
  ExportRequest located = request;
  located.source = source.path;
  ASSIGN_OR_RETURN(located.output, Output(request.output, user));
  if (roots_.IsThere(absl::StrCat(located.source, "/", kManifestName))) {
    const absl::Status whole = CheckExported(roots_, located.source);
    if (absl::IsUnavailable(whole)) return whole;
    if (!whole.ok()) {
      return FieldError(absl::StatusCode::kFailedPrecondition,
                        FieldReason::kCheckpointCorrupt, "source",
                        std::string(whole.message()));
    }
  }
  const PathResolver resolve = names_.resolver(user);
  ASSIGN_OR_RETURN(
      ExportPlan plan,
      PlanExport(located,
                 {.files = &roots_, .find_base = [&](const std::string& name) {
                    return resolve(kBaseModel, name, PathKind::kModel);
                  }}));
  if (fs::path(located.output).parent_path() == roots_.roots().back()) {
    ASSIGN_OR_RETURN(const OutputMark mark, MarkOf(source, user));
    plan.texts[kOutputOwnerName] = ExportOwnerJson(mark);
  }
  return plan;
}

}  // namespace roundhouse
