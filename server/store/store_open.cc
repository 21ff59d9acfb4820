#include "server/store/store_open.h"

#include <fcntl.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files/descriptor.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/files/file_site.h"
#include "base/log.h"
#include "base/status.h"
#include "server/store/store_check.h"
#include "server/store/store_records.h"
#include "server/store/store_schema.h"
#include "server/store/store_tail.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

// A store that nobody has written to yet has so many.
constexpr int64_t kCommitsOfMigration = 1;

constexpr char kUsersLost[] =
    ": only root and the daemon's own user may call until there are users "
    "again (roundhouse user add)";

std::string BackupPath(const std::string& path) { return path + ".backup"; }

std::string MarkPath(const std::string& path) {
  return fs::path(path).replace_extension(".mark").string();
}

// Says what to do about a file that is damaged; other errors stay as they are.
absl::Status WithRemedy(const absl::Status& status, const std::string& path) {
  if (!absl::IsDataLoss(status) && !absl::IsInternal(status)) return status;
  std::error_code error;
  const bool backup = fs::exists(BackupPath(path), error);
  return absl::Status(
      status.code(),
      absl::StrCat(
          status.message(), "; nothing is served from ", path,
          " as it is. Move it and its -wal and -shm files aside, ",
          backup ? absl::StrCat("copy ", BackupPath(path), " to ", path)
                 : "put a backup of it in its place if you have one",
          " and start again: what was acknowledged since is then named, and "
          "its numbers are not given again"));
}

// Answers the version that the file had; 0: it was empty.
absl::StatusOr<int64_t> Prepare(Database* db) {
  RETURN_IF_ERROR(CheckPages(db));
  ASSIGN_OR_RETURN(const int64_t version, db->QueryInt("PRAGMA user_version"));
  if (version < 0 || version > kStoreSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job store: its version is ", version, ", this program knows ",
        kStoreSchemaVersion,
        " at most; it was written by a newer Roundhouse, start that one"));
  }
  RETURN_IF_ERROR(CheckSchema(db, version));
  RETURN_IF_ERROR(MigrateSchema(db, version, kStoreSchemaVersion));
  RETURN_IF_ERROR(CheckRows(db));
  return version;
}

std::string JobNames(int64_t first, int64_t last) {
  if (first == last) return NameOfJob(first);
  return absl::StrCat(NameOfJob(first), " to ", NameOfJob(last));
}

std::string LossOf(const StoreMark& tail, const StoreMark& mark,
                   const std::string& path) {
  std::string text = absl::StrCat(
      path, " has lost acknowledged writes: ", mark.commit - tail.commit,
      " commits are missing after commit ", tail.commit);
  if (mark.job > tail.job) {
    absl::StrAppend(&text, "; jobs lost: ", JobNames(tail.job + 1, mark.job),
                    " (their ids are not given again)");
  }
  if (mark.revision > tail.revision) {
    absl::StrAppend(&text, "; events lost: ", tail.revision + 1, " to ",
                    mark.revision);
  }
  if (mark.accounts > tail.accounts) {
    absl::StrAppend(&text, "; users lost", kUsersLost);
  }
  return text;
}

// The backup may know what the store has lost: it is not written over.
absl::Status KeepBackup(const std::string& path, absl::Time now,
                        std::string* finding) {
  std::error_code error;
  if (!fs::exists(BackupPath(path), error)) return absl::OkStatus();
  const std::string kept =
      absl::StrCat(path, ".kept-", absl::ToUnixSeconds(now));
  const absl::Status renamed =
      RenameDurably(kStoreBackup, BackupPath(path), kept, RenameMode::kReplace);
  if (!renamed.ok()) {
    return absl::InternalError(absl::StrCat("job store: ", renamed.message()));
  }
  absl::StrAppend(finding, "; the last backup is kept as ", kept);
  return absl::OkStatus();
}

void NoteMark(OpenedStore* store, const std::string& path, int64_t commits) {
  const MarkFile& mark = *store->mark;
  const std::string unknown =
      ": whether the store has lost its last writes can't be said";
  if (mark.damaged()) {
    store->findings.push_back(
        absl::StrCat(MarkPath(path), " is damaged and written anew",
                     mark.found().has_value() ? "" : unknown));
  } else if (!mark.found().has_value() && commits > kCommitsOfMigration) {
    store->findings.push_back(
        absl::StrCat(MarkPath(path), " is missing and made anew", unknown));
  }
}

absl::Status SkipLost(Database* db, const StoreMark& mark) {
  RETURN_IF_ERROR(db->Execute("BEGIN IMMEDIATE"));
  RETURN_IF_ERROR(SkipTo(db, mark));
  RETURN_IF_ERROR(AdvanceTail(db).status());
  return db->Execute("COMMIT");
}

absl::Status CompareWithMark(OpenedStore* store, const std::string& path,
                             absl::Time now, bool was_empty) {
  ASSIGN_OR_RETURN(StoreMark tail, ReadTail(store->db.get()));
  NoteMark(store, path, tail.commit);
  const StoreMark mark = store->mark->found().value_or(tail);
  std::error_code error;
  std::string loss;
  if (mark.commit > tail.commit) {
    loss = LossOf(tail, mark, path);
  } else if (was_empty && fs::exists(BackupPath(path), error)) {
    loss = absl::StrCat(path, " was missing and is made anew");
  }
  const bool users_lost = mark.accounts > tail.accounts;
  if (loss.empty() && users_lost) {
    loss = absl::StrCat(path, " has no users, but there were some", kUsersLost);
  }
  if (!loss.empty()) {
    RETURN_IF_ERROR(KeepBackup(path, now, &loss));
    store->findings.push_back(std::move(loss));
  }
  if (mark.commit > tail.commit || users_lost) {
    RETURN_IF_ERROR(SkipLost(store->db.get(), mark));
    ASSIGN_OR_RETURN(tail, ReadTail(store->db.get()));
  }
  return store->mark->Reset(tail);
}

// What is convenient but need not be: a full disk must not keep a store shut.
void TidyUp(Database* db, const std::string& path) {
  absl::Status status = db->Checkpoint(Database::Wal::kTruncate);
  if (status.ok()) status = BackUp(db, path);
  if (!status.ok()) RH_LOG(kWarning) << path << ": no backup: " << status;
}

absl::Status SyncFile(const std::string& path) {
  const Descriptor file(
      file_calls::Open(kStoreBackup, path, O_RDWR | O_CLOEXEC, 0));
  if (file.get() < 0 || file_calls::Sync(kStoreBackup, file.get()) != 0) {
    return FileError("syncing", path, errno);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BackUp(Database* db, const std::string& path) {
  const std::string fresh = BackupPath(path) + ".new";
  RETURN_IF_ERROR(RemoveFile(kStoreBackup, fresh));
  absl::Status status = db->CopyTo(fresh);
  if (status.ok()) status = SyncFile(fresh);
  if (status.ok()) {
    status = RenameDurably(kStoreBackup, fresh, BackupPath(path),
                           RenameMode::kReplace);
  }
  if (!status.ok()) file_calls::Discard(kStoreBackup, fresh);
  return status;
}

absl::StatusOr<OpenedStore> OpenStore(const std::string& path, absl::Time now) {
  OpenedStore store;
  auto db = Database::Open(path, Database::Mode::kWrite);
  if (!db.ok()) return WithRemedy(db.status(), path);
  store.db = *std::move(db);
  const auto version = Prepare(store.db.get());
  if (!version.ok()) return WithRemedy(version.status(), path);
  ASSIGN_OR_RETURN(store.mark, MarkFile::Open(MarkPath(path)));
  RETURN_IF_ERROR(CompareWithMark(&store, path, now, *version == 0));
  TidyUp(store.db.get(), path);
  return store;
}

}  // namespace roundhouse
