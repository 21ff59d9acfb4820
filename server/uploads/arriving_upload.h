// The files of one upload that arrives: chunks are written where they belong,
// hashed as they come, and what is whole is checked against the hash that the
// client gave.
//
// A file arrives from its beginning.  Chunks that come before those that they
// follow are kept up to kUploadAheadBytes ahead; so after a death of the
// process all of a file but its last kUploadAheadBytes is known to be there.
// A byte that was taken is never written again, and a file that has a second
// name is never written to.
//
// Thread-safe: one call after the other.  Blocking, but for what tells how far
// it is: that waits for no disk.
#ifndef ROUNDHOUSE_SERVER_UPLOADS_ARRIVING_UPLOAD_H_
#define ROUNDHOUSE_SERVER_UPLOADS_ARRIVING_UPLOAD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/files/durable_file.h"
#include "base/mutex.h"
#include "server/uploads/upload_folders.h"
#include "server/uploads/upload_record.h"

namespace roundhouse {

// Files whose hashes are computed as they come; those of others are read again
// in the end.
inline constexpr size_t kMaxOpenHashes = 16;
// Bytes that one call reads to check them.
inline constexpr uint64_t kVerifySliceBytes = uint64_t{256} << 20;
// Bytes of a file after which the disk is told to write what came, beside what
// comes: the sync in the end is short then, and no chunk waits for the disk.
inline constexpr uint64_t kUploadFlushBytes = uint64_t{8} << 20;

class ArrivingUpload {
 public:
  // What is there of it: its parts, as a process of before left them.
  // `folders` outlives it.
  ArrivingUpload(const UploadFolders& folders, const UploadRecord& record);
  ArrivingUpload(const ArrivingUpload&) = delete;
  ArrivingUpload& operator=(const ArrivingUpload&) = delete;

  // Takes a file over that is there by content.  The errors are LinkPart's.
  absl::Status TakeLink(size_t index, const std::string& from);

  // How much of the file is there now.  kInvalidArgument: there is no such
  // place; kOutOfRange: it is too far ahead; kFailedPrecondition: the upload
  // is over; else what the disk says.
  absl::StatusOr<uint64_t> PutChunk(size_t index, uint64_t offset,
                                    absl::string_view data);
  // How much of each file is there.
  std::vector<uint64_t> Received() const;
  // Not there yet, of all files.
  uint64_t MissingBytes() const;
  // When the last chunk came, as far as the disk knows.
  absl::Time last_time() const;

  // Checks up to kVerifySliceBytes more of what is whole; true: all is there,
  // on disk, and what it was said to be.  kFailedPrecondition: a file is not
  // whole, or not what its hash says, and has to come again.
  absl::StatusOr<bool> Verify();
  uint64_t verified_bytes() const;
  // With all hashes.  REQUIRES: Verify said true.
  UploadedFiles VerifiedFiles() const;
  // No chunk is taken from now on, and a Verify that runs ends early.
  void Close();

 private:
  struct Part {
    uint64_t received = 0;
    std::map<uint64_t, uint64_t> ahead;  // ends by beginnings
    std::unique_ptr<Sha256> hash;        // of the first `hashed` bytes
    uint64_t hashed = 0;
    bool verified = false;
  };

  void Restore(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckPlace(size_t index, uint64_t offset, size_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Write(size_t index, uint64_t offset, absl::string_view data)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HashNew(Part& part, uint64_t offset, absl::string_view data)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Hashes what is whole, from `part.hashed` on, at most `budget` bytes.
  absl::Status HashMore(size_t index, uint64_t& budget)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends one that was hashed whole: it is what it was said to be, and synced.
  absl::Status Settle(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Reset(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropHash(Part& part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void SetReceived(size_t index, uint64_t received)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Came(absl::Time when);

  // How far it is, for those who don't wait for mutex_.
  struct Seen {
    std::vector<uint64_t> received;
    uint64_t missing_bytes = 0;
    uint64_t verified_bytes = 0;
    absl::Time last_time;
  };

  const UploadFolders& folders_;
  const std::string id_;
  mutable Mutex mutex_;
  mutable Mutex seen_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  Seen seen_ ABSL_GUARDED_BY(seen_mutex_);
  UploadedFiles files_ ABSL_GUARDED_BY(mutex_);
  std::vector<Part> parts_ ABSL_GUARDED_BY(mutex_);  // as files_
  size_t open_hashes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> closed_ = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_UPLOADS_ARRIVING_UPLOAD_H_
