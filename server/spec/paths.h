// File names in job files, held under the data roots.
//
// A relative path is looked up under the roots in order; an absolute one must
// lie under a root.  Every lookup is openat2(RESOLVE_BENEATH |
// RESOLVE_NO_SYMLINKS), so neither ".." nor a symbolic link leads out.  Errors
// name the field and the path, never what lies outside.
//
// Thread-safe after Open().
#ifndef ROUNDHOUSE_SERVER_SPEC_PATHS_H_
#define ROUNDHOUSE_SERVER_SPEC_PATHS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roundhouse {

// kModel: a directory here; who resolves names may know models by others, too.
enum class PathKind { kFile, kDirectory, kModel };

class DataRoots {
 public:
  // kInvalidArgument for a root that is not a directory.  Roots are resolved
  // once, symbolic links in their own names included.
  static absl::StatusOr<std::unique_ptr<DataRoots>> Open(
      const std::vector<std::string>& roots);
  ~DataRoots();
  DataRoots(const DataRoots&) = delete;
  DataRoots& operator=(const DataRoots&) = delete;

  // The absolute name of what `path` means.  kInvalidArgument with
  // PATH_OUTSIDE_DATA_ROOTS or PATH_NOT_FOUND and the field.
  absl::StatusOr<std::string> Resolve(const std::string& field,
                                      const std::string& path,
                                      PathKind kind) const;

  const std::vector<std::string>& roots() const { return names_; }

 private:
  DataRoots() = default;
  absl::Status LookUp(size_t root, const std::string& relative,
                      PathKind kind) const;

  std::vector<std::string> given_;  // As the operator wrote them.
  std::vector<std::string> names_;  // Real names.
  std::vector<int> fds_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_PATHS_H_
