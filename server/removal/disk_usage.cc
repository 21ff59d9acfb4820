// DiskKeeper: what lies on the disk, page by page.
//
// First comes what is the server's own and what was uploaded, then jobs, the
// newest first, then what is among the outputs and no job's result, by name.
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/upload_names.h"
#include "server/access/job_names.h"
#include "server/removal/disk_keeper.h"
#include "server/spec/spec_error.h"
#include "server/weights/output_owner.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

// How page tokens begin.
constexpr absl::string_view kJobs = "jobs:";
constexpr absl::string_view kExports = "exports:";

// Folders of the state directory whose parts are counted one by one.
constexpr const char* kCountedFolders[] = {"jobs", "outputs", "uploads"};

bool Sees(const DiskUsageQuery& query, const std::string& project) {
  return query.caller.RoleIn(project) >= Role::kViewer &&
         (query.project.empty() || query.project == project);
}

// Names in a folder, sorted; none where there is no such folder.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error);
       !error && entry != fs::directory_iterator() &&
       names.size() < kMaxCountedNames;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

DiskPart Shared(DiskPart part, const TreeBytes& bytes) {
  part.bytes = bytes.shared;
  part.partial = bytes.partial;
  return part;
}

void AddJob(const JobRecord& job, const JobRemains& remains,
            DiskUsagePage& page) {
  DiskPart part{.name = JobName(job.project, job.id),
                .owner = job.owner,
                .project = job.project};
  // How many jobs use the same data is not told: what has other names counts
  // with the cache, and with nobody once that has let it go.
  TreeBytes data = remains.data;
  data.shared = data.own;
  TreeBytes checkpoints = remains.broken;
  for (const auto& [step, bytes] : remains.checkpoints) checkpoints += bytes;
  for (const auto& [kind, bytes] :
       {std::pair(DiskKind::kCheckpoint, checkpoints),
        std::pair(DiskKind::kOutput, remains.output_bytes),
        std::pair(DiskKind::kPreparedData, data),
        std::pair(DiskKind::kLogs, remains.logs)}) {
    part.kind = kind;
    if (bytes.shared > 0 || bytes.partial) {
      page.parts.push_back(Shared(part, bytes));
    }
  }
}

}  // namespace

void DiskKeeper::AddServer(DiskUsagePage& page) const {
  const std::string& state = world_.paths.state_dir();
  TreeBytes cache, store;
  for (const std::string& name : NamesIn(state)) {
    const std::string path = absl::StrCat(state, "/", name);
    if (path == world_.paths.prepared()) {
      cache += CountTree(path);
      cache.shared = cache.whole;
    } else if (std::find(std::begin(kCountedFolders), std::end(kCountedFolders),
                         name) == std::end(kCountedFolders)) {
      store += CountTree(path);
    }
  }
  page.parts.push_back(Shared({.kind = DiskKind::kPreparedCache}, cache));
  page.parts.push_back(Shared({.kind = DiskKind::kStore}, store));
}

void DiskKeeper::AddUploads(const DiskUsageQuery& query,
                            DiskUsagePage& page) const {
  if (world_.uploads == nullptr) return;
  for (const auto& upload : world_.uploads->BytesOnDisk()) {
    const UploadRecord& record = upload.record;
    if (!Sees(query, record.project)) continue;
    TreeBytes bytes{.shared = static_cast<int64_t>(upload.bytes)};
    if (!upload.parts.empty()) bytes.shared = CountTree(upload.parts).own;
    page.parts.push_back(Shared({.kind = DiskKind::kUpload,
                                 .name = record.reference(),
                                 .owner = record.owner,
                                 .project = record.project},
                                bytes));
  }
}

absl::StatusOr<std::string> DiskKeeper::AddJobs(const DiskUsageQuery& query,
                                                std::optional<int64_t> before,
                                                DiskUsagePage& page) const {
  ASSIGN_OR_RETURN(const JobPage jobs,
                   world_.store.List({}, before, kScannedOfPage));
  size_t counted = 0;
  for (const JobRecord& job : jobs.jobs) {
    if (!Sees(query, job.project)) continue;
    if (++counted > kCountedOfPage) {
      return absl::StrCat(kJobs, *JobNumber(job.id) + 1);
    }
    AddJob(job, FindRemains(world_.paths, job), page);
  }
  if (!jobs.next_before.has_value()) return absl::StrCat(kExports, 0);
  return absl::StrCat(kJobs, *jobs.next_before);
}

absl::StatusOr<std::optional<DiskPart>> DiskKeeper::ExportNamed(
    const DiskUsageQuery& query, const std::string& name) const {
  std::optional<DiskPart> part;
  const std::string path = absl::StrCat(world_.paths.outputs(), "/", name);
  const OutputMark mark = ReadOutputMark(path);
  if (!mark.job_uid.empty()) {
    ASSIGN_OR_RETURN(const auto id, world_.store.FindUid(mark.job_uid));
    // The result of a job that is there counts with the job.
    if (id.has_value() && world_.store.Get(*id).ok()) return part;
  } else if (mark.project.empty() && mark.user.empty() &&
             FindJob(world_.store, name).ok()) {
    return part;  // made before there were uids
  }
  const Caller& caller = query.caller;
  const bool his = !mark.user.empty() && (mark.user == caller.owner() ||
                                          mark.user == caller.principal);
  const bool seen = mark.project.empty()
                        ? query.project.empty() && (his || caller.admin)
                        : Sees(query, mark.project);
  if (!seen) return part;
  part = Shared({.kind = DiskKind::kExport,
                 .name = name,
                 .owner = mark.user,
                 .project = mark.project},
                CountTree(path));
  return part;
}

// The token has a place in the list, since a name may be a stranger's.
absl::StatusOr<std::string> DiskKeeper::AddExports(const DiskUsageQuery& query,
                                                   size_t from,
                                                   DiskUsagePage& page) const {
  const std::vector<std::string> names = NamesIn(world_.paths.outputs());
  size_t counted = 0;
  for (size_t at = from; at < names.size(); ++at) {
    if (at - from == kScannedOfPage || counted == kCountedOfPage) {
      return absl::StrCat(kExports, at);
    }
    ASSIGN_OR_RETURN(auto part, ExportNamed(query, names[at]));
    if (!part.has_value()) continue;
    ++counted;
    page.parts.push_back(*std::move(part));
  }
  return "";
}

absl::StatusOr<std::string> DiskKeeper::FindOutputOf(
    const std::string& project) {
  // All of them, and none is passed over because of an error.
  std::error_code error;
  for (auto entry = fs::directory_iterator(world_.paths.outputs(), error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string path = entry->path().string();
    if (ReadOutputMark(path).project == project) return path;
  }
  if (!error || error == std::errc::no_such_file_or_directory) return "";
  return absl::UnavailableError(absl::StrCat(
      world_.paths.outputs(), " can't be listed: ", error.message()));
}

absl::StatusOr<DiskUsagePage> DiskKeeper::DiskUsage(
    const DiskUsageQuery& query) {
  ASSIGN_OR_RETURN(const Turn turn, Begin(query.caller.owner()));
  DiskUsagePage page;
  struct statvfs disk;
  if (statvfs(world_.paths.state_dir().c_str(), &disk) == 0) {
    const auto block = static_cast<int64_t>(disk.f_frsize);
    page.disk_free_bytes = static_cast<int64_t>(disk.f_bavail) * block;
    page.disk_total_bytes = static_cast<int64_t>(disk.f_blocks) * block;
  }
  absl::string_view token = query.page_token;
  const bool exports = absl::ConsumePrefix(&token, kExports);
  const bool jobs = !exports && absl::ConsumePrefix(&token, kJobs);
  int64_t at = 0;
  const bool is_number = absl::SimpleAtoi(token, &at) && at >= 0;
  if (exports || jobs ? !is_number : !token.empty()) {
    return FieldError(FieldReason::kInvalidValue, "page_token",
                      "is none that this server gave");
  }
  if (exports) {
    ASSIGN_OR_RETURN(page.next_page_token,
                     AddExports(query, static_cast<size_t>(at), page));
    return page;
  }
  std::optional<int64_t> begin;
  if (jobs) {
    begin = at;
  } else {
    if (query.project.empty()) AddServer(page);
    AddUploads(query, page);
  }
  ASSIGN_OR_RETURN(page.next_page_token, AddJobs(query, begin, page));
  return page;
}

}  // namespace roundhouse
