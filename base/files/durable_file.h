// The one door for files that matter: what is written through it is on disk
// when the call returns, and is there under its name whole or not at all.
//
// Every call says at which site it is (file_site.h); below lies file_fault.h,
// where tests have the disk fail.
//
// Errors name the path: RESOURCE_EXHAUSTED where disk, quota or the file size
// limit is at its end, UNAVAILABLE where descriptors or memory are short just
// now, INTERNAL where the device fails (EIO) and for all else.  Of what is read
// NOT_FOUND says that it is not there and DATA_LOSS that it is no file that may
// be read.  New files and folders are the owner's and the group's (0640, 0750,
// less the umask).  Blocking; thread-safe.
#ifndef ROUNDHOUSE_BASE_FILES_DURABLE_FILE_H_
#define ROUNDHOUSE_BASE_FILES_DURABLE_FILE_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/files/file_site.h"

struct evp_md_ctx_st;

namespace roundhouse {

inline constexpr mode_t kFileMode = 0640;
inline constexpr mode_t kFolderMode = 0750;

// "WHAT PATH: why", with the code above.
absl::Status FileError(absl::string_view what, const std::string& path,
                       int error);

// Replaces the file at `path` or makes it: temporary name beside it (TempName),
// write, fsync, rename, fsync of the folder.
absl::Status WriteFileDurably(FileSite site, const std::string& path,
                              absl::string_view content);
std::string TempName(const std::string& path);

// Writes and syncs a file in a folder that nobody reads yet, under its own
// name; SyncFolder makes the names durable, one call for all of them.
absl::Status WriteNewFile(FileSite site, const std::string& path,
                          absl::string_view content);
absl::Status SyncFolder(FileSite site, const std::string& path);

// Makes the folder and what lacks above it; their names are durable.
absl::Status MakeFolderDurably(FileSite site, const std::string& path);

enum class RenameMode {
  kReplace,   // what is there goes, a folder only where it is empty
  kKeep,      // ALREADY_EXISTS where something is there
  kExchange,  // the two change places; both are there
};
// And fsync of the folder or folders that the two names lie in.
absl::Status RenameDurably(FileSite site, const std::string& from,
                           const std::string& to, RenameMode mode);

// The whole file.  INVALID_ARGUMENT: not a regular file, or more than
// `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(FileSite site,
                                          const std::string& path,
                                          uint64_t max_bytes);

// The same of a descriptor that somebody opened; `path` names it in errors.
absl::StatusOr<std::string> ReadWholeFile(FileSite site, int fd,
                                          const std::string& path,
                                          uint64_t max_bytes);

// SHA-256 in pieces, in lower-case hexadecimal.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Add(absl::string_view bytes);
  // Once, after the last Add.
  std::string Finish();

 private:
  evp_md_ctx_st* const context_;
};
std::string Sha256Of(absl::string_view bytes);

struct FileHash {
  uint64_t bytes = 0;
  std::string sha256;
};
// The hash of a regular file, read piece by piece.  CANCELLED once `stop` is
// true.
absl::StatusOr<FileHash> HashFile(FileSite site, const std::string& path,
                                  const std::atomic<bool>* stop = nullptr);

absl::StatusOr<FileHash> HashFile(FileSite site, int fd,
                                  const std::string& path,
                                  const std::atomic<bool>* stop = nullptr);

// Removes the file or link, where there is one; remove_tree.h removes folders.
absl::Status RemoveFile(FileSite site, const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_DURABLE_FILE_H_
