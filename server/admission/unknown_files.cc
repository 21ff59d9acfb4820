#include "server/admission/unknown_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "server/weights/output_owner.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNamed = 10;

// Names of the folders in `path`, sorted; none where it is not there.
absl::StatusOr<std::vector<std::string>> FoldersIn(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(path, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (entry->symlink_status(ignored).type() == fs::file_type::directory) {
      names.push_back(entry->path().filename().string());
    }
  }
  if (error) {
    return absl::InternalError(
        absl::StrCat("reading ", path, ": ", error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<bool> KnowsOutput(const JobStore& store, const std::string& name,
                                 const std::string& path) {
  const OutputMark mark = ReadOutputMark(path);
  if (!mark.project.empty()) return true;  // it says whose it is
  if (JobNumber(name).has_value()) {
    const absl::Status job = store.Get(name).status();
    if (!job.ok() && !absl::IsNotFound(job)) return job;
    if (!job.ok()) return false;
  }
  // An export, or made before there were uids.
  if (mark.job_uid.empty()) return true;
  ASSIGN_OR_RETURN(const auto id, store.FindUid(mark.job_uid));
  return id.has_value();
}

std::string First(const std::vector<std::string>& names) {
  const size_t named = std::min(names.size(), kNamed);
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + named, ", "),
                      names.size() > named
                          ? absl::StrCat(" and ", names.size() - named, " more")
                          : "");
}

}  // namespace

absl::StatusOr<UnknownFiles> FindUnknownFiles(const std::string& state_dir,
                                              const JobStore& store) {
  UnknownFiles unknown;
  ASSIGN_OR_RETURN(const auto uids, FoldersIn(state_dir + "/jobs"));
  for (const std::string& uid : uids) {
    ASSIGN_OR_RETURN(const auto id, store.FindUid(uid));
    if (!id.has_value()) unknown.jobs.push_back(uid);
  }
  const std::string outputs = state_dir + "/outputs";
  ASSIGN_OR_RETURN(const auto names, FoldersIn(outputs));
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(
        const bool known,
        KnowsOutput(store, name, absl::StrCat(outputs, "/", name)));
    const int64_t number = JobNumber(name).value_or(0);
    if (!known) {
      unknown.outputs.push_back(name);
    } else {
      const absl::Status job =
          number == 0 ? absl::OkStatus() : store.Get(name).status();
      if (job.ok()) continue;
      // It stayed when its job was deleted.
      if (!absl::IsNotFound(job)) return job;
    }
    if (number <= kMaxUnknownJob) {
      unknown.last_job = std::max(unknown.last_job, number);
    }
  }
  return unknown;
}

std::string Describe(const UnknownFiles& unknown) {
  std::vector<std::string> parts;
  if (!unknown.jobs.empty()) {
    parts.push_back(absl::StrCat(unknown.jobs.size(),
                                 " folders in jobs/: ", First(unknown.jobs)));
  }
  if (!unknown.outputs.empty()) {
    parts.push_back(
        absl::StrCat(unknown.outputs.size(),
                     " folders in outputs/: ", First(unknown.outputs)));
  }
  if (parts.empty()) return "";
  return absl::StrCat("the job store does not know ",
                      absl::StrJoin(parts, " and "),
                      "; they are left as they are");
}

}  // namespace roundhouse
