// The files of this machine that are to be uploaded: found, hashed, and
// recognised when they are read again.
//
// Blocking.  Thread-safe: values and functions without state.
#ifndef ROUNDHOUSE_CLIENT_TRANSFER_LOCAL_FILES_H_
#define ROUNDHOUSE_CLIENT_TRANSFER_LOCAL_FILES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files/checked_file.h"

namespace roundhouse::client {

struct LocalFile {
  std::string name;  // below what is uploaded: "train/a.jsonl"
  std::string path;
  FileIdentity identity;  // when it was found
  std::string sha256;     // "": not hashed
};

struct LocalFiles {
  std::vector<LocalFile> files;
  // Names that begin with a '.', which no upload has.
  std::vector<std::string> left_out;
  uint64_t bytes() const;
};

// A file, or all files below a folder, by name.  kNotFound; kInvalidArgument
// names what is no file (a link, a pipe, a device), or a name or number of
// files that an upload can't have.
absl::StatusOr<LocalFiles> FindLocalFiles(const std::string& path);

// Reads all of them.  `moved` is told of bytes read, and says whether to go
// on.  kCancelled; kFailedPrecondition: a file is another than it was.
absl::Status HashLocalFiles(LocalFiles* files,
                            const std::function<bool(uint64_t bytes)>& moved);

// Reads [offset, offset + bytes) into `target`, of the file in the state in
// which it was found.  kFailedPrecondition: it has changed since.
absl::Status ReadLocalFile(const LocalFile& file, uint64_t offset, size_t bytes,
                           std::string* target);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TRANSFER_LOCAL_FILES_H_
