// Where uploads lie on the disk, below STATE/uploads:
//
//   parts/ID/N      file N of one that arrives, as far as it has come
//   building/ID/    a version that is being put together, of links to its parts
//   versions/ID/    a finished one: its files under their names
//
// A version appears by a rename, whole and synced, and is never written to
// after it.  Files are 0600 and folders 0700: only the daemon's user reads
// them.  Blocking; thread-safe for different ids.  Errors are durable_file.h's.
#ifndef ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_FOLDERS_H_
#define ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_FOLDERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/uploads/upload_record.h"

namespace roundhouse {

class UploadFolders {
 public:
  explicit UploadFolders(const std::string& state_dir)
      : root_(state_dir + "/uploads") {}

  const std::string& root() const { return root_; }
  std::string versions() const { return root_ + "/versions"; }
  std::string Version(const std::string& id) const;
  std::string Parts(const std::string& id) const;
  std::string Part(const std::string& id, size_t index) const;

  // The three folders are there.
  absl::Status Make() const;
  absl::Status MakeParts(const std::string& id) const;
  // Gives a finished file a second name, as a part.  kNotFound: it is gone.
  absl::Status LinkPart(const std::string& from, const std::string& id,
                        size_t index) const;
  // The version of synced parts, whole and under its name.
  // kResourceExhausted: a file has as many names as the file system allows.
  absl::Status Publish(const std::string& id, const UploadedFiles& files) const;
  // What is left of one that is not finished, but its parts.
  absl::Status RemoveUnfinished(const std::string& id) const;
  absl::Status RemoveParts(const std::string& id) const;
  absl::Status RemoveAll(const std::string& id) const;

  // The inodes of a version's files, in their order; 0: it is not there.  Never
  // null.
  std::shared_ptr<const std::vector<uint64_t>> Inodes(
      const std::string& id, const UploadedFiles& files) const;

  // Names that lie in the three folders, each "versions/NAME" and so on; of
  // other things in STATE/uploads "NAME".
  absl::StatusOr<std::vector<std::string>> List() const;

 private:
  std::string Building(const std::string& id) const;
  absl::Status Build(const std::string& id, const UploadedFiles& files) const;

  const std::string root_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_FOLDERS_H_
