#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "server/store/disk_reserve.h"
#include "server/uploads/upload_table.h"
#include "server/uploads/uploads.h"

namespace roundhouse {
namespace {

// Names that a message shows.
constexpr size_t kMaxShown = 5;

}  // namespace

absl::StatusOr<std::unique_ptr<Uploads>> Uploads::Open(UploadOptions options,
                                                       JobStore* store,
                                                       const Clock& clock) {
  if (options.free_bytes == nullptr) options.free_bytes = FreeDiskBytes;
  // Names are compared with what they lead to, which has no links.
  std::error_code error;
  const auto real = std::filesystem::weakly_canonical(options.state_dir, error);
  if (error) {
    return absl::InternalError(
        absl::StrCat(options.state_dir, ": ", error.message()));
  }
  options.state_dir = real.string();
  std::unique_ptr<Uploads> uploads(
      new Uploads(std::move(options), store, clock));
  RETURN_IF_ERROR(uploads->folders_.Make());
  RETURN_IF_ERROR(uploads->Load());
  RETURN_IF_ERROR(uploads->LookAround());
  uploads->Sweep();
  return uploads;
}

absl::Status Uploads::Load() {
  std::vector<UploadRecord> records;
  RETURN_IF_ERROR(store_->ReadWith([&](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(records, ReadUploads(db));
    return absl::OkStatus();
  }));
  MutexLock change(change_mutex_);
  for (UploadRecord& record : records) {
    RETURN_IF_ERROR(TakeUp(std::move(record)));
  }
  return absl::OkStatus();
}

void Uploads::Mind(const UploadRecord& record, const absl::Status& done) {
  if (done.ok()) return;
  findings_.push_back(absl::StrCat(record.reference(), " of project ",
                                   record.project, ": ", done.message(),
                                   "; the next start tries again"));
}

// Ends what a death left half done.
absl::Status Uploads::TakeUp(UploadRecord record) {
  const std::string id = record.id;
  Entry entry{.record = std::move(record)};
  switch (entry.record.state) {
    case UploadState::kArriving:
      Mind(entry.record, folders_.RemoveUnfinished(id));
      Mind(entry.record, folders_.MakeParts(id));
      entry.arriving = std::make_shared<ArrivingUpload>(folders_, entry.record);
      break;
    case UploadState::kFinished:
      Mind(entry.record, folders_.RemoveParts(id));
      if (!PathExists(folders_.Version(id))) {
        findings_.push_back(absl::StrCat(
            entry.record.reference(), " of project ", entry.record.project,
            ": its folder ", folders_.Version(id),
            " is gone; put it back, or delete the upload"));
      }
      entry.inodes = folders_.Inodes(id, *entry.record.files);
      break;
    case UploadState::kRemoving: {
      const absl::Status removed = folders_.RemoveAll(id);
      if (removed.ok()) {
        return store_->WriteWith(
            [&id](Database* db) { return DropUpload(db, id); });
      }
      // It stays known, and counts, but nobody finds it.
      Mind(entry.record, removed);
      entry.inodes = folders_.Inodes(id, *entry.record.files);
      break;
    }
  }
  MutexLock lock(mutex_);
  entries_.emplace(id, std::move(entry));
  return absl::OkStatus();
}

absl::Status Uploads::LookAround() {
  ASSIGN_OR_RETURN(const std::vector<std::string> there, folders_.List());
  std::vector<std::string> unknown;
  MutexLock lock(mutex_);
  for (const std::string& name : there) {
    const size_t slash = name.find('/');
    const bool known =
        slash != std::string::npos && entries_.contains(name.substr(slash + 1));
    if (!known) unknown.push_back(name);
  }
  if (unknown.empty()) return absl::OkStatus();
  const size_t count = unknown.size();
  unknown.resize(std::min(count, kMaxShown));
  findings_.push_back(
      absl::StrCat(folders_.root(), ": ", count,
                   " names that the job store does not know, which stay: ",
                   absl::CHexEscape(absl::StrJoin(unknown, ", ")),
                   count > kMaxShown ? " ..." : ""));
  return absl::OkStatus();
}

void Uploads::Sweep() {
  const absl::Time now = clock_.WallTime();
  MutexLock change(change_mutex_);
  std::vector<Entry> expired;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      if (entry.arriving != nullptr &&
          entry.arriving->last_time() + kArrivingLifetime < now) {
        expired.push_back(entry);
      }
    }
  }
  for (const Entry& entry : expired) {
    RH_LOG(kInfo) << entry.record.reference() << " of " << entry.record.owner
                  << " was never finished, and goes";
    const absl::Status status = RemoveEntry(entry);
    if (!status.ok()) RH_LOG(kWarning) << "upload: " << status.message();
  }
}

}  // namespace roundhouse
