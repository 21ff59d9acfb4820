// What was checked is what is used: a file that somebody else named, looked up
// beneath a folder that an admin named, and recognised when it is opened again.
//
// Members of a lab may rename and replace what lies in a data root at any
// moment.  So a name is resolved once for each use, by openat2 with
// RESOLVE_BENEATH, the file is examined through the descriptor that this gave,
// and what is read comes from that descriptor.  Nothing but a regular file is
// ever opened for reading.
//
// Where a process limits its opens (open_limit.h) one that takes too long is
// given up: errno says kOpenHangs, a status UNAVAILABLE.
//
// Thread-safe; plain values and functions without state.
#ifndef ROUNDHOUSE_BASE_FILES_CHECKED_FILE_H_
#define ROUNDHOUSE_BASE_FILES_CHECKED_FILE_H_

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files/descriptor.h"

namespace roundhouse {

// Tells one state of one file from every other.  A number of a device changes
// with a reboot: it is 0, and not compared, in what was stored.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size_bytes = 0;
  int64_t mtime_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};

FileIdentity IdentityOf(const struct stat& info);
// `then` against `now`.
bool IsSame(const FileIdentity& then, const FileIdentity& now);

struct CheckedFile {
  std::string root;  // absolute; "": no folder bounds it, the path is our own
  std::string path;  // absolute, below `root`
  FileIdentity identity;
  bool operator==(const CheckedFile&) const = default;
};

// Links in a path that is looked up: followed while they stay beneath the
// folder, or not at all.
enum class Links { kBeneath, kNone };

// An O_PATH descriptor of `relative` beneath `folder`, or none with errno:
// EXDEV where it leads out, ELOOP where a link is in the way.
Descriptor OpenBeneath(int folder, const std::string& relative, Links links);

// A descriptor for reading what the O_PATH descriptor `place` names, or none
// with errno.  REQUIRES: it was seen to be a regular file, so that this does
// not block and has no effect on a device.
Descriptor OpenForReading(int place);

// A descriptor for listing the folder that `folder` names, or none with errno.
Descriptor OpenFolderForReading(int folder);

// A descriptor for reading, of the same file in the same state.  NOT_FOUND;
// FAILED_PRECONDITION where it is not the same any more, leads out of its root
// now or is no regular file; UNAVAILABLE where descriptors or memory are short;
// others as the system says; all name the path.
absl::StatusOr<Descriptor> OpenChecked(const CheckedFile& file);

// A descriptor for writing to a file that is being made: the same inode, not
// reached through any link, whatever has been written to it since.  Errors as
// OpenChecked's.
absl::StatusOr<Descriptor> OpenForWriting(const CheckedFile& file);

// OK where the file is now what it was then; else FAILED_PRECONDITION naming
// its path: it changed since it was checked.
absl::Status CheckSame(const CheckedFile& then, const FileIdentity& now);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_CHECKED_FILE_H_
