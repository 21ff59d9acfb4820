// Datasets and models that people upload: what arrives, what is there, and what
// "dataset:NAME" means.
//
//   auto uploads = Uploads::Open({.state_dir = state_dir}, store);
//   auto begun = uploads->Create({.name = "dates", .files = files}, reads);
//   uploads->PutChunk(begun->record.id, 0, 0, data);
//   while (!uploads->Finish(begun->record.id)->finished()) {}
//   uploads->Find(UploadKind::kDataset, "default", "dates", 0);
//
// A finished upload is never changed: the same name again is another version,
// so a later one changes no job that runs.  Files with the same contents are
// one file on disk, where whoever uploads could read the other upload; others
// are told nothing of what there is, and transfer what they name.
//
// Who may do what is the caller's affair; this only knows owners and projects.
//
// Thread-safe.  Blocks on the disk and for commits.
#ifndef ROUNDHOUSE_SERVER_UPLOADS_UPLOADS_H_
#define ROUNDHOUSE_SERVER_UPLOADS_UPLOADS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/store/store.h"
#include "server/uploads/arriving_upload.h"
#include "server/uploads/upload_folders.h"
#include "server/uploads/upload_record.h"

namespace roundhouse {

inline constexpr size_t kMaxUploads = 10'000;              // of all states
inline constexpr size_t kMaxUploadedFilesInAll = 200'000;  // of all uploads
// An owner's shares; four or more owners have room for as much.
inline constexpr size_t kMaxUploadsEach = 2'500;
inline constexpr size_t kMaxUploadedFilesEach = 50'000;
inline constexpr size_t kMaxArrivingEach = 16;
// One that is not finished goes so long after its last chunk.
inline constexpr absl::Duration kArrivingLifetime = absl::Hours(7 * 24);
inline constexpr absl::Duration kUploadSweepInterval = absl::Hours(1);
// Bytes of an owner's uploads, finished or not.
inline constexpr uint64_t kUploadBytesEach = uint64_t{2} << 40;
// What uploads leave free on the disk, for checkpoints and the store.
inline constexpr uint64_t kUploadFreeBytes = uint64_t{1} << 30;

struct UploadOptions {
  std::string state_dir;
  // How many bytes the uploads of an owner may have: one place to ask a table
  // of limits.
  std::function<uint64_t(const std::string& owner)> bytes_of =
      [](const std::string&) { return kUploadBytesEach; };
  // Free where the path is; empty: what the disk says.
  std::function<absl::StatusOr<uint64_t>(const std::string& path)> free_bytes;
};

struct NewUpload {
  UploadKind kind = UploadKind::kDataset;
  std::string name;
  std::string project = kDefaultProject;
  std::string owner;
  UploadedFiles files;
};

// How far one is.
struct UploadProgress {
  UploadRecord record;
  std::vector<uint64_t> received;  // as record.files; of a finished one empty
  uint64_t verified_bytes = 0;     // that Finish has checked
  bool finished() const { return record.state == UploadState::kFinished; }
};

// A finished one, for whoever reads it.
struct FoundUpload {
  UploadRecord record;
  std::string directory;  // absolute
};

// Whether who uploads may read what is in the project.
using ReadsProject = std::function<bool(const std::string& project)>;

// Whether there is room for so many bytes more, as they count.
using HasRoom = std::function<absl::Status(uint64_t bytes)>;
inline absl::Status AnyRoom(uint64_t) { return absl::OkStatus(); }

class Uploads {
 public:
  // Reads the table, ends what a death left half done, and looks at what lies
  // in STATE/uploads.  kDataLoss when a row is damaged; else errors of the
  // disk.  `store` and `clock` outlive it.
  static absl::StatusOr<std::unique_ptr<Uploads>> Open(
      UploadOptions options, JobStore* store,
      const Clock& clock = SystemClock());
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  // What Open found that somebody should look at, a sentence each.
  const std::vector<std::string>& findings() const { return findings_; }
  // In it finished uploads lie, each in a folder of its own.
  std::string directory() const { return folders_.versions(); }

  // Begins one.  The same again, of the same owner, goes on with it; where the
  // newest version of that name has the same contents, that one is the answer.
  // Files with a hash that `reads` lets the caller have are there at once.
  // kInvalidArgument with the field; kNotFound: the project;
  // kResourceExhausted: limit, value and what is used; the errors of `room`,
  // which is asked where something new begins.
  absl::StatusOr<UploadProgress> Create(const NewUpload& upload,
                                        const ReadsProject& reads,
                                        const HasRoom& room = AnyRoom);
  // How much of the file is there.  kNotFound; ArrivingUpload's errors.
  absl::StatusOr<uint64_t> PutChunk(const std::string& id, size_t file,
                                    uint64_t offset, absl::string_view data);
  // Checks a part of it, and makes the version once all is checked: call it
  // until finished().  The same contents as the newest version of that name are
  // that version.  ArrivingUpload::Verify's errors, and the disk's; kAborted:
  // another one of the owner's is being checked now, call it again.
  absl::StatusOr<UploadProgress> Finish(const std::string& id);

  // kNotFound.
  absl::StatusOr<UploadRecord> Record(const std::string& id) const;
  absl::StatusOr<UploadProgress> Get(const std::string& id) const;
  // Without those that are being removed; by project, name and version.
  std::vector<UploadRecord> List() const;
  // The version, 0: the newest finished one.  kNotFound.
  absl::StatusOr<FoundUpload> Find(UploadKind kind, const std::string& project,
                                   const std::string& name,
                                   int64_t version) const;
  // kNotFound; kFailedPrecondition naming jobs that have not ended and use it.
  absl::Status Remove(const std::string& id);

  // Each with its bytes on disk, also those that are being removed.  A file
  // that several have counts with the one that was begun first; of one that
  // arrives its folder of parts says how much is there.
  struct UploadBytes {
    UploadRecord record;
    uint64_t bytes = 0;
    std::string parts;  // "": it does not arrive
  };
  std::vector<UploadBytes> BytesOnDisk() const;
  // Removes what has not come on for kArrivingLifetime.
  void Sweep();
  // Owners may be others since accounts had another generation (accounts.h).
  absl::Status UseAccounts(uint64_t generation);
  // For the transaction that adds a job: kNotFound where the spec, as JSON,
  // names a version that is gone or going.
  absl::Status CheckThere(Database* db, const std::string& spec) const;
  // Bytes on disk, and still to come, of an owner's uploads in a project; ""
  // means any.  What does not arrive any more counts once where it is one file
  // on disk.
  uint64_t BytesOf(const std::string& owner,
                   const std::string& project = "") const;

 private:
  struct Entry {
    UploadRecord record;
    std::shared_ptr<ArrivingUpload> arriving;  // null: it is finished
    // Its files' on disk, 0: none; null as long as it arrives.
    std::shared_ptr<const std::vector<uint64_t>> inodes;
  };

  Uploads(UploadOptions options, JobStore* store, const Clock& clock);
  absl::Status Load();
  absl::Status TakeUp(UploadRecord record);
  // What a start can't do now is said, and the next one tries again.
  void Mind(const UploadRecord& record, const absl::Status& done);
  absl::Status LookAround();
  absl::Status CheckRoom(const NewUpload& upload) const;
  absl::Status CheckBytes(const std::string& owner, uint64_t more) const;
  absl::StatusOr<UploadRecord> Insert(const NewUpload& upload);
  void TakeKnownFiles(const UploadRecord& record, const ReadsProject& reads,
                      ArrivingUpload& arriving) const;
  // nullptr: there is none.
  const Entry* Newest(UploadKind kind, const std::string& project,
                      const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Entry* ArrivingAs(const NewUpload& upload) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  UploadProgress ProgressOf(const Entry& entry) const;
  // Whether `newest` has these files, and its folder is there.
  bool Serves(const Entry* newest, const UploadedFiles& files) const;
  absl::StatusOr<Entry> EntryOf(const std::string& id) const;
  absl::StatusOr<UploadProgress> MakeVersion(const Entry& entry);
  absl::Status RemoveEntry(const Entry& entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);

  const UploadOptions options_;
  JobStore* const store_;
  const Clock& clock_;
  const UploadFolders folders_;
  std::vector<std::string> findings_;
  Mutex change_mutex_;                  // one change of the table at a time
  std::atomic<uint64_t> accounts_ = 0;  // the generation that owners are of
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(change_mutex_);
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // by id
  std::set<std::string> checking_ ABSL_GUARDED_BY(mutex_);        // owners
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_UPLOADS_UPLOADS_H_
