#include "server/uploads/uploads.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "base/path_exists.h"
#include "base/random_bytes.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/uploads/upload_table.h"
#include "server/uploads/upload_use.h"

namespace roundhouse {
namespace {

absl::Status NoSuchUpload(const std::string& id) {
  return FieldError(
      absl::StatusCode::kNotFound, FieldReason::kNotFound, "upload",
      absl::StrCat("there is no upload ", absl::CHexEscape(id.substr(0, 64))));
}

bool SameName(const UploadRecord& record, UploadKind kind,
              const std::string& project, const std::string& name) {
  return record.kind == kind && record.project == project &&
         record.name == name;
}

// By name: whoever sends files sends them in any order.
bool SameContents(UploadedFiles a, UploadedFiles b) {
  if (a.size() != b.size()) return false;
  const auto by_name = [](const UploadedFile& x, const UploadedFile& y) {
    return x.name < y.name;
  };
  std::sort(a.begin(), a.end(), by_name);
  std::sort(b.begin(), b.end(), by_name);
  return a == b && std::none_of(a.begin(), a.end(), [](const auto& file) {
           return file.sha256.empty();
         });
}

}  // namespace

Uploads::Uploads(UploadOptions options, JobStore* store, const Clock& clock)
    : options_(std::move(options)),
      store_(store),
      clock_(clock),
      folders_(options_.state_dir) {}

const Uploads::Entry* Uploads::Newest(UploadKind kind,
                                      const std::string& project,
                                      const std::string& name) const {
  const Entry* newest = nullptr;
  for (const auto& [id, entry] : entries_) {
    const UploadRecord& record = entry.record;
    if (record.state != UploadState::kFinished ||
        !SameName(record, kind, project, name)) {
      continue;
    }
    if (newest == nullptr || record.version > newest->record.version) {
      newest = &entry;
    }
  }
  return newest;
}

const Uploads::Entry* Uploads::ArrivingAs(const NewUpload& upload) const {
  for (const auto& [id, entry] : entries_) {
    const UploadRecord& record = entry.record;
    if (entry.arriving != nullptr && record.owner == upload.owner &&
        SameName(record, upload.kind, upload.project, upload.name) &&
        *record.files == upload.files) {
      return &entry;
    }
  }
  return nullptr;
}

bool Uploads::Serves(const Entry* newest, const UploadedFiles& files) const {
  return newest != nullptr && SameContents(*newest->record.files, files) &&
         PathExists(folders_.Version(newest->record.id));
}

UploadProgress Uploads::ProgressOf(const Entry& entry) const {
  UploadProgress progress{.record = entry.record};
  if (entry.arriving == nullptr) return progress;
  progress.received = entry.arriving->Received();
  progress.verified_bytes = entry.arriving->verified_bytes();
  return progress;
}

absl::StatusOr<Uploads::Entry> Uploads::EntryOf(const std::string& id) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() ||
      found->second.record.state == UploadState::kRemoving) {
    return NoSuchUpload(id);
  }
  return found->second;
}

// Hard links, so that nobody who deletes the other upload takes them away.
void Uploads::TakeKnownFiles(const UploadRecord& record,
                             const ReadsProject& reads,
                             ArrivingUpload& arriving) const {
  std::map<std::pair<std::string, uint64_t>, std::string> known;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      if (entry.record.state != UploadState::kFinished) continue;
      if (!reads(entry.record.project)) continue;
      for (const UploadedFile& file : *entry.record.files) {
        known.emplace(std::pair(file.sha256, file.bytes),
                      absl::StrCat(folders_.Version(id), "/", file.name));
      }
    }
  }
  for (size_t i = 0; i < record.files->size(); ++i) {
    const UploadedFile& file = record.files->at(i);
    if (file.bytes == 0) continue;
    const auto found = known.find({file.sha256, file.bytes});
    if (found == known.end()) continue;
    // Where it can't be linked it comes over the wire.
    const absl::Status taken = arriving.TakeLink(i, found->second);
    if (!taken.ok()) RH_LOG(kInfo) << "upload: " << taken.message();
  }
}

absl::StatusOr<UploadRecord> Uploads::Insert(const NewUpload& upload) {
  UploadRecord record{
      .id = NewRandomId(),
      .kind = upload.kind,
      .project = upload.project,
      .name = upload.name,
      .owner = upload.owner,
      .create_time =
          absl::FromUnixMicros(absl::ToUnixMicros(clock_.WallTime())),
      .files = std::make_shared<const UploadedFiles>(upload.files)};
  RETURN_IF_ERROR(store_->WriteWith([&record](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(Statement project,
                     db->Prepare("SELECT name FROM projects WHERE name = ?"));
    ASSIGN_OR_RETURN(const bool there, project.Bind(record.project).Step());
    if (there) return PutUpload(db, record);
    return FieldError(absl::StatusCode::kNotFound, FieldReason::kNotFound,
                      "project",
                      absl::StrCat("there is no project ", record.project));
  }));
  absl::Status made = folders_.MakeParts(record.id);
  if (made.ok()) return record;
  // Else the row would count as one that arrives.
  const absl::Status dropped = store_->WriteWith(
      [&record](Database* db) { return DropUpload(db, record.id); });
  if (!dropped.ok()) RH_LOG(kWarning) << "upload: " << dropped.message();
  return made;
}

absl::StatusOr<UploadProgress> Uploads::Create(const NewUpload& upload,
                                               const ReadsProject& reads,
                                               const HasRoom& room) {
  if (const absl::Status named = CheckUploadName(upload.name); !named.ok()) {
    return FieldError(FieldReason::kInvalidValue, "name", named.message());
  }
  if (const absl::Status sound = CheckFiles(upload.files); !sound.ok()) {
    return FieldError(FieldReason::kInvalidValue, "files", sound.message());
  }
  MutexLock change(change_mutex_);
  {
    MutexLock lock(mutex_);
    const Entry* const newest =
        Newest(upload.kind, upload.project, upload.name);
    if (Serves(newest, upload.files)) return ProgressOf(*newest);
    const Entry* const arriving = ArrivingAs(upload);
    if (arriving != nullptr) return ProgressOf(*arriving);
  }
  RETURN_IF_ERROR(CheckRoom(upload));
  RETURN_IF_ERROR(room(CountedBytes(upload.files)));
  ASSIGN_OR_RETURN(UploadRecord record, Insert(upload));
  auto arriving = std::make_shared<ArrivingUpload>(folders_, record);
  TakeKnownFiles(record, reads, *arriving);
  const Entry entry{std::move(record), std::move(arriving), nullptr};
  UploadProgress progress = ProgressOf(entry);
  MutexLock lock(mutex_);
  entries_.emplace(entry.record.id, entry);
  return progress;
}

absl::StatusOr<uint64_t> Uploads::PutChunk(const std::string& id, size_t file,
                                           uint64_t offset,
                                           absl::string_view data) {
  ASSIGN_OR_RETURN(const Entry entry, EntryOf(id));
  if (entry.arriving == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(entry.record.reference(), " is finished"));
  }
  return entry.arriving->PutChunk(file, offset, data);
}

absl::StatusOr<UploadProgress> Uploads::Finish(const std::string& id) {
  ASSIGN_OR_RETURN(const Entry entry, EntryOf(id));
  if (entry.arriving == nullptr) return ProgressOf(entry);
  const std::string& owner = entry.record.owner;
  {
    // Each takes a thread of all callers' for a while.
    MutexLock lock(mutex_);
    if (!checking_.insert(owner).second) {
      return FieldError(absl::StatusCode::kAborted, FieldReason::kTryLater, "",
                        absl::StrCat("another upload of ", owner,
                                     " is being checked; try again"));
    }
  }
  const absl::StatusOr<bool> whole = entry.arriving->Verify();
  {
    MutexLock lock(mutex_);
    checking_.erase(owner);
  }
  RETURN_IF_ERROR(whole.status());
  if (!*whole) return ProgressOf(entry);
  return MakeVersion(entry);
}

absl::StatusOr<UploadProgress> Uploads::MakeVersion(const Entry& arrived) {
  MutexLock change(change_mutex_);
  // Somebody else's call may have finished or removed it meanwhile.
  ASSIGN_OR_RETURN(Entry entry, EntryOf(arrived.record.id));
  if (entry.arriving == nullptr) return ProgressOf(entry);
  UploadRecord& record = entry.record;
  record.files =
      std::make_shared<const UploadedFiles>(entry.arriving->VerifiedFiles());
  record.version = 1;
  std::optional<UploadRecord> same;
  {
    MutexLock lock(mutex_);
    const Entry* const newest =
        Newest(record.kind, record.project, record.name);
    if (newest != nullptr) {
      record.version = newest->record.version + 1;
      if (Serves(newest, *record.files)) same = newest->record;
    }
  }
  if (same.has_value()) {
    RETURN_IF_ERROR(RemoveEntry(entry));
    return UploadProgress{.record = *std::move(same)};
  }
  RETURN_IF_ERROR(folders_.Publish(record.id, *record.files));
  record.state = UploadState::kFinished;
  record.finish_time =
      absl::FromUnixMicros(absl::ToUnixMicros(clock_.WallTime()));
  RETURN_IF_ERROR(store_->WriteWith(
      [&record](Database* db) { return PutUpload(db, record); }));
  KillPoint("upload.stored");
  entry.arriving->Close();
  entry.arriving = nullptr;
  entry.inodes = folders_.Inodes(record.id, *record.files);
  {
    MutexLock lock(mutex_);
    entries_[record.id] = entry;
  }
  // They are names of files that are there; the next start tries again.
  const absl::Status removed = folders_.RemoveParts(record.id);
  if (!removed.ok()) RH_LOG(kWarning) << "upload: " << removed.message();
  return ProgressOf(entry);
}

absl::StatusOr<UploadRecord> Uploads::Record(const std::string& id) const {
  ASSIGN_OR_RETURN(const Entry entry, EntryOf(id));
  return entry.record;
}

absl::StatusOr<UploadProgress> Uploads::Get(const std::string& id) const {
  ASSIGN_OR_RETURN(const Entry entry, EntryOf(id));
  return ProgressOf(entry);
}

std::vector<UploadRecord> Uploads::List() const {
  std::vector<UploadRecord> records;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      if (entry.record.state == UploadState::kRemoving) continue;
      records.push_back(entry.record);
    }
  }
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) {
    return std::tie(a.project, a.kind, a.name, a.version, a.create_time) <
           std::tie(b.project, b.kind, b.name, b.version, b.create_time);
  });
  return records;
}

absl::StatusOr<FoundUpload> Uploads::Find(UploadKind kind,
                                          const std::string& project,
                                          const std::string& name,
                                          int64_t version) const {
  MutexLock lock(mutex_);
  const Entry* found = version == 0 ? Newest(kind, project, name) : nullptr;
  for (const auto& [id, entry] : entries_) {
    const UploadRecord& record = entry.record;
    if (version != 0 && record.state == UploadState::kFinished &&
        record.version == version && SameName(record, kind, project, name)) {
      found = &entry;
    }
  }
  if (found != nullptr) {
    return FoundUpload{found->record, folders_.Version(found->record.id)};
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no ", ToText({.kind = kind, .name = name, .version = version}),
      " in project ", project, "; roundhouse upload makes one"));
}

absl::Status Uploads::Remove(const std::string& id) {
  MutexLock change(change_mutex_);
  ASSIGN_OR_RETURN(const Entry entry, EntryOf(id));
  const auto set_state = [&](UploadState state) {
    MutexLock lock(mutex_);
    entries_.at(id).record.state = state;
  };
  // Nobody finds it any more; who found it before is refused by CheckThere.
  set_state(UploadState::kRemoving);
  const absl::Status status = RemoveEntry(entry);
  if (!status.ok()) {
    MutexLock lock(mutex_);
    const auto left = entries_.find(id);
    if (left != entries_.end()) left->second.record.state = entry.record.state;
  }
  return status;
}

absl::Status Uploads::RemoveEntry(const Entry& entry) {
  UploadRecord record = entry.record;
  record.state = UploadState::kRemoving;
  RETURN_IF_ERROR(store_->WriteWith([&](Database* db) -> absl::Status {
    if (entry.record.state == UploadState::kFinished) {
      RETURN_IF_ERROR(CheckUnused(db, record));
    }
    return PutUpload(db, record);
  }));
  KillPoint("upload.removing");
  if (entry.arriving != nullptr) entry.arriving->Close();
  {
    MutexLock lock(mutex_);
    entries_.erase(record.id);
  }
  // What fails is done again by the next start, whose row says so.
  absl::Status status = folders_.RemoveAll(record.id);
  if (status.ok()) {
    status = store_->WriteWith(
        [&record](Database* db) { return DropUpload(db, record.id); });
  }
  if (!status.ok()) RH_LOG(kWarning) << "upload: " << status.message();
  return absl::OkStatus();
}

absl::Status Uploads::CheckThere(Database* db, const std::string& spec) const {
  return CheckNamedUploads(db, folders_.versions(), spec);
}

absl::Status Uploads::UseAccounts(uint64_t generation) {
  if (accounts_ == generation) return absl::OkStatus();
  MutexLock change(change_mutex_);
  std::map<std::string, std::string> owners;
  RETURN_IF_ERROR(store_->ReadWith([&](Database* db) -> absl::Status {
    ASSIGN_OR_RETURN(owners, ReadUploadOwners(db));
    return absl::OkStatus();
  }));
  accounts_ = generation;
  MutexLock lock(mutex_);
  for (auto& [id, entry] : entries_) {
    const auto owner = owners.find(id);
    if (owner != owners.end()) entry.record.owner = owner->second;
  }
  return absl::OkStatus();
}

}  // namespace roundhouse
