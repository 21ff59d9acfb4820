// The files of what jobs and exports made, for whoever downloads them: which
// there are, their bytes, and their hashes.
//
// A file is opened beneath its directory each time, without following links,
// and has to be in the state that the list told of.  Hashes are computed a
// piece a call, so that no call is long; some that are being computed are kept.
//
// Thread-safe.  Blocks on the disk.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_OUTPUT_FILES_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_OUTPUT_FILES_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files/checked_file.h"
#include "base/files/descriptor.h"
#include "base/files/durable_file.h"
#include "base/mutex.h"
#include "base/upload_names.h"

namespace roundhouse {

// Bytes of one answer: clients ask for chunks as they send them.
inline constexpr uint64_t kOutputChunkBytes = kUploadChunkBytes;
// Bytes that one call hashes.
inline constexpr uint64_t kHashSliceBytes = uint64_t{256} << 20;
// Files whose hash is half computed: of all callers, and of one.
inline constexpr size_t kMaxHashesKept = 32;
inline constexpr size_t kMaxHashesEach = 4;

struct OutputFile {
  std::string name;  // below the directory
  uint64_t bytes = 0;
  std::string state;  // tells it from the same file when it has changed
};

struct FileHashProgress {
  uint64_t hashed_bytes = 0;
  std::string sha256;  // "": there is more to hash
};

class OutputFiles {
 public:
  // Directories in STATE/outputs and STATE/jobs are read.  A call hashes
  // `slice_bytes`.
  explicit OutputFiles(const std::string& state_dir,
                       uint64_t slice_bytes = kHashSliceBytes);

  // By name, without those that begin with a '.'.  kPermissionDenied: the
  // directory is none of those; kNotFound.
  absl::StatusOr<std::vector<OutputFile>> List(const std::string& directory);
  // At most kOutputChunkBytes from `offset` on; "" at the end.
  // kFailedPrecondition: it is not in the `state` that List told of.
  absl::StatusOr<std::string> Read(const std::string& directory,
                                   const OutputFile& file, uint64_t offset);
  // Hashes some more of it; call it until there is a hash.  It begins again
  // where the caller has kMaxHashesEach others, or others have so many that
  // what he had is gone.  Errors as Read's; kAborted: another call of the
  // caller's hashes now, call it again.
  absl::StatusOr<FileHashProgress> Hash(const std::string& directory,
                                        const OutputFile& file,
                                        const std::string& caller = "");

 private:
  struct HalfHash {
    std::string key;  // directory, name and state
    std::string caller;
    uint64_t hashed = 0;
    std::unique_ptr<Sha256> hash = std::make_unique<Sha256>();
  };

  absl::StatusOr<Descriptor> OpenDirectory(const std::string& directory) const;
  absl::StatusOr<Descriptor> OpenFile(const std::string& directory,
                                      const OutputFile& file) const;
  std::shared_ptr<HalfHash> TakeHash(const std::string& key,
                                     const std::string& caller);
  void KeepHash(std::shared_ptr<HalfHash> half);
  absl::StatusOr<FileHashProgress> HashMore(const Descriptor& opened,
                                            const std::string& name,
                                            std::shared_ptr<HalfHash> half);

  const std::vector<std::string> roots_;
  const uint64_t slice_bytes_;
  Mutex mutex_;
  std::list<std::shared_ptr<HalfHash>> hashes_
      ABSL_GUARDED_BY(mutex_);                             // the newest first
  std::set<std::string> hashing_ ABSL_GUARDED_BY(mutex_);  // callers
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_OUTPUT_FILES_H_
