// Engine: what is asked to be exported, and where to.  PlanExportOf runs on the
// exporter's thread.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "server/jobs/checkpoint.h"
#include "server/jobs/engine.h"
#include "server/jobs/spec_error.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

constexpr char kResourcePrefix[] = "projects/default/fineTuningJobs/";
constexpr size_t kMaxOutputNameBytes = 64;

absl::Status Refused(const char* field, const std::string& why) {
  return FieldError("INVALID_VALUE", field, absl::StrCat(field, ": ", why));
}

absl::Status Missing(const std::string& what) {
  return FieldError(absl::StatusCode::kNotFound, "NOT_FOUND", "source",
                    "source: " + what);
}

// "job-7", or "job-7/checkpoint-40" or job-7/checkpoints/40 with the step.
struct JobPart {
  std::string job;
  std::optional<int64_t> step;
};

JobPart SplitSource(const std::string& source) {
  for (const char* between : {"/checkpoint-", "/checkpoints/"}) {
    const size_t at = source.find(between);
    int64_t step = 0;
    if (at != std::string::npos &&
        absl::SimpleAtoi(source.substr(at + std::string(between).size()),
                         &step)) {
      return {source.substr(0, at), step};
    }
  }
  return {source, std::nullopt};
}

std::string CheckpointsText(const std::string& directory) {
  const std::vector<int64_t> steps = ListCheckpointSteps(directory);
  if (steps.empty()) return "it has no checkpoints";
  return absl::StrCat("it has checkpoint-",
                      absl::StrJoin(steps, ", checkpoint-"));
}

bool IsOutputName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxOutputNameBytes &&
         name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

}  // namespace

std::shared_ptr<ExportTask> Engine::Export(const ExportRequest& request) {
  return exporter_->Start(request);
}

absl::StatusOr<std::string> Engine::ExportSource(
    const std::string& source) const {
  std::string name = source;
  bool must_be_job = false;
  for (const char* prefix : {"job:", kResourcePrefix}) {
    if (!absl::StartsWith(name, prefix)) continue;
    name = name.substr(std::string(prefix).size());
    must_be_job = true;
  }
  const auto [id, step] = SplitSource(name);
  const auto job = FindJob(id);
  if (!job.ok()) {
    if (must_be_job || JobNumber(id).has_value()) {
      return Missing(std::string(job.status().message()));
    }
    return roots_->Resolve("source", source, PathKind::kDirectory);
  }
  const std::string directory = JobDirectory(*job);
  if (step.has_value()) {
    const std::string path = CheckpointPath(directory, *step);
    if (fs::is_directory(path)) return path;
    return Missing(absl::StrCat(job->id, " has no checkpoint-", *step, "; ",
                                CheckpointsText(directory)));
  }
  if (!job->output_path.empty()) return job->output_path;
  return absl::FailedPreconditionError(
      absl::StrCat(job->id, " is ", JobStateName(job->state),
                   " and has no output; ", CheckpointsText(directory)));
}

absl::StatusOr<std::string> Engine::ExportOutput(
    const std::string& output) const {
  // As Create has them: jobs, then outputs, after the data roots.
  const std::string& outputs = roots_->roots().back();
  const fs::path given(output);
  const std::string name = given.filename().string();
  if (!IsOutputName(name)) {
    return Refused(
        "output",
        absl::StrCat("\"", output, "\" does not end in a name of 1 to ",
                     kMaxOutputNameBytes,
                     " of letters, digits, '-', '_', '.'"));
  }
  std::string parent = outputs;
  if (given.has_parent_path()) {
    ASSIGN_OR_RETURN(parent,
                     roots_->Resolve("output", given.parent_path().string(),
                                     PathKind::kDirectory));
  }
  const std::string path = absl::StrCat(parent == "/" ? "" : parent, "/", name);
  if (fs::symlink_status(path).type() != fs::file_type::not_found) {
    return FieldError(absl::StatusCode::kAlreadyExists, "INVALID_VALUE",
                      "output",
                      absl::StrCat("output: ", path, ": is there already"));
  }
  const std::string state = fs::path(outputs).parent_path().string();
  if (parent == outputs) {
    RETURN_IF_ERROR(CheckOutputName(JobSpec{.output_name = name}));
  } else if (absl::StartsWith(parent + "/", state + "/")) {
    return Refused("output", absl::StrCat(parent, " is the server's own"));
  }
  if (access(parent.c_str(), W_OK) != 0) {
    return Refused("output",
                   absl::StrCat(parent, " can't be written by the server"));
  }
  return path;
}

absl::StatusOr<ExportPlan> Engine::PlanExportOf(
    const ExportRequest& request) const {
  ExportRequest located = request;
  ASSIGN_OR_RETURN(located.source, ExportSource(request.source));
  ASSIGN_OR_RETURN(located.output, ExportOutput(request.output));
  if (fs::exists(located.source + "/checkpoint.json")) {
    const absl::Status whole =
        ReadCheckpoint(located.source, IsAdapterDirectory(located.source))
            .status();
    if (!whole.ok()) {
      return FieldError(absl::StatusCode::kFailedPrecondition,
                        "CHECKPOINT_CORRUPT", "source",
                        absl::StrCat("source: ", std::string(whole.message())));
    }
  }
  return PlanExport(located, {.find_base = [this](const std::string& name) {
                      return ResolvePath(kBaseModel, name,
                                         PathKind::kDirectory);
                    }});
}

}  // namespace roundhouse
