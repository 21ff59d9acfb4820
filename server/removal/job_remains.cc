#include "server/removal/job_remains.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/path_exists.h"
#include "server/weights/checkpoint.h"
#include "server/weights/output_owner.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

void AddEntry(const std::string& path, JobRemains& remains) {
  const std::string name = fs::path(path).filename().string();
  const TreeBytes bytes = CountTree(path);
  const auto step = CheckpointStepOf(path);
  if (step.has_value()) {
    remains.checkpoints[*step] = bytes;
  } else if (absl::StrContains(name, "checkpoint-")) {
    remains.broken += bytes;  // ".tmp-checkpoint-4", "checkpoint-4.corrupt"
  } else if (name == "data" || name == "tokenizer") {
    remains.data += bytes;
  } else {
    remains.logs += bytes;
  }
}

}  // namespace

bool IsOutputOf(const std::string& directory, const std::string& job_uid) {
  const OutputMark mark = ReadOutputMark(directory);
  if (!mark.job_uid.empty()) return mark.job_uid == job_uid;
  // Made before there were uids; an export says whose it is.
  return mark.project.empty() && mark.user.empty();
}

std::string FindOutput(const JobPaths& paths, const JobRecord& job) {
  const std::string recorded =
      job.output_path.empty()
          ? ""
          : absl::StrCat(paths.outputs(), "/",
                         fs::path(job.output_path).filename().string());
  const std::string named = paths.Output(job);
  // The last one is a result whose name was taken (DirectoryPlan).
  for (const std::string& path :
       {recorded, named, absl::StrCat(named, "-", job.uid)}) {
    if (path.empty() || !IsDirectory(path)) continue;
    if (path == recorded ? IsOutputOf(path, job.uid)
                         : ReadOutputMark(path).job_uid == job.uid) {
      return path;
    }
  }
  return "";
}

JobRemains FindRemains(const JobPaths& paths, const JobRecord& job) {
  JobRemains remains;
  size_t names = 0;
  std::error_code error;
  for (auto entry = fs::directory_iterator(paths.Directory(job), error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (++names > kMaxCountedNames) {
      remains.logs.partial = true;
      break;
    }
    AddEntry(entry->path().string(), remains);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    remains.logs.partial = true;
  }
  remains.output = FindOutput(paths, job);
  if (!remains.output.empty()) {
    remains.output_bytes = CountTree(remains.output);
  }
  return remains;
}

}  // namespace roundhouse
