// Whether there is room for more uploads: Uploads' limits.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/uploads/uploads.h"

namespace roundhouse {
namespace {

absl::Status OverLimit(const std::string& what, uint64_t limit, uint64_t used,
                       uint64_t wanted) {
  return FieldError(absl::StatusCode::kResourceExhausted, FieldReason::kQuota,
                    "",
                    absl::StrCat(what, ": ", limit, " at most, ", used,
                                 " used, ", wanted, " more asked for"));
}

absl::Status CheckCount(const std::string& what, size_t limit, size_t used,
                        size_t wanted) {
  if (used < limit && wanted <= limit - used) return absl::OkStatus();
  return OverLimit(what, limit, used, wanted);
}

}  // namespace

uint64_t Uploads::BytesOf(const std::string& owner,
                          const std::string& project) const {
  MutexLock lock(mutex_);
  std::set<uint64_t> seen;
  uint64_t bytes = 0;
  for (const auto& [id, entry] : entries_) {
    if (!owner.empty() && entry.record.owner != owner) continue;
    if (!project.empty() && entry.record.project != project) continue;
    const UploadedFiles& files = *entry.record.files;
    for (size_t i = 0; i < files.size(); ++i) {
      // What arrives has only said what it will be.
      const uint64_t inode = entry.inodes == nullptr ? 0 : entry.inodes->at(i);
      if (inode == 0 || seen.insert(inode).second) {
        bytes += CountedBytes({files[i]});
      }
    }
  }
  return bytes;
}

std::vector<Uploads::UploadBytes> Uploads::BytesOnDisk() const {
  std::vector<Entry> entries;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, entry] : entries_) entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.record.create_time < b.record.create_time;
  });
  std::set<uint64_t> seen;
  std::vector<UploadBytes> all;
  for (const Entry& entry : entries) {
    UploadBytes upload{.record = entry.record};
    const UploadedFiles& files = *entry.record.files;
    if (entry.inodes == nullptr) upload.parts = folders_.Parts(entry.record.id);
    for (size_t i = 0; entry.inodes != nullptr && i < files.size(); ++i) {
      const uint64_t inode = entry.inodes->at(i);
      if (inode != 0 && seen.insert(inode).second)
        upload.bytes += files[i].bytes;
    }
    all.push_back(std::move(upload));
  }
  return all;
}

absl::Status Uploads::CheckBytes(const std::string& owner,
                                 uint64_t more) const {
  const uint64_t used = BytesOf(owner), limit = options_.bytes_of(owner);
  if (more > limit || used > limit - more) {
    return OverLimit(absl::StrCat("disk_bytes of ", owner), limit, used, more);
  }
  ASSIGN_OR_RETURN(const uint64_t free, options_.free_bytes(folders_.root()));
  uint64_t expected = kUploadFreeBytes;
  MutexLock lock(mutex_);
  for (const auto& [id, entry] : entries_) {
    if (entry.arriving != nullptr) expected += entry.arriving->MissingBytes();
  }
  if (expected <= free && more <= free - expected) return absl::OkStatus();
  return FieldError(
      absl::StatusCode::kResourceExhausted, FieldReason::kStorageFull, "",
      absl::StrCat("the server's disk has ", free, " bytes free, of which ",
                   expected, " are kept or expected, and the upload has ",
                   more));
}

absl::Status Uploads::CheckRoom(const NewUpload& upload) const {
  RETURN_IF_ERROR(CheckBytes(upload.owner, CountedBytes(upload.files)));
  MutexLock lock(mutex_);
  size_t files = 0, own_files = 0, own = 0, arriving = 0;
  for (const auto& [id, entry] : entries_) {
    files += entry.record.files->size();
    if (entry.record.owner != upload.owner) continue;
    ++own;
    own_files += entry.record.files->size();
    if (entry.arriving != nullptr) ++arriving;
  }
  const size_t more = upload.files.size();
  RETURN_IF_ERROR(CheckCount(
      absl::StrCat("unfinished uploads of ", upload.owner,
                   " (dataset list shows them, dataset delete ends one)"),
      kMaxArrivingEach, arriving, 1));
  RETURN_IF_ERROR(CheckCount(absl::StrCat("uploads of ", upload.owner),
                             kMaxUploadsEach, own, 1));
  RETURN_IF_ERROR(CheckCount(absl::StrCat("uploaded files of ", upload.owner),
                             kMaxUploadedFilesEach, own_files, more));
  RETURN_IF_ERROR(CheckCount("uploads", kMaxUploads, entries_.size(), 1));
  return CheckCount("uploaded files", kMaxUploadedFilesInAll, files, more);
}

}  // namespace roundhouse
