// File names in job files, held under the data roots, and the one way to open
// what they mean.
//
// A relative path is looked up under the roots in order; an absolute one must
// lie under a root.  Links are followed while they stay beneath their root, or
// lead to another data root; what leads elsewhere is refused by name.  Every
// lookup is openat2(RESOLVE_BENEATH) from a root that was opened when the
// daemon started, so that nothing that changes meanwhile leads out.  Errors
// name the field and the path, never what lies outside.
//
// Thread-safe after Create().
#ifndef ROUNDHOUSE_SERVER_SPEC_PATHS_H_
#define ROUNDHOUSE_SERVER_SPEC_PATHS_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files/descriptor.h"
#include "base/model/input_file.h"

namespace roundhouse {

// kModel and kModelConfig: a directory here; who resolves names may know models
// by others, too, of which kModelConfig needs config.json alone.
enum class PathKind { kFile, kDirectory, kModel, kModelConfig };

struct DataRootsOptions {
  std::vector<std::string> roots;  // the admin's; names are looked up in them
  // The daemon's own: names are looked up in them, after the others, but no
  // link from elsewhere may lead there.
  std::vector<std::string> own;
  // Files are opened in it, names are not looked up.  It need not be there yet;
  // "": there is none.
  std::string hub_cache;
};

class DataRoots final : public FileOpener {
 public:
  // kInvalidArgument for a root that is not a directory.  Roots are resolved
  // once, symbolic links in their own names included.
  static absl::StatusOr<std::unique_ptr<DataRoots>> Create(
      const DataRootsOptions& options);
  ~DataRoots() override;
  DataRoots(const DataRoots&) = delete;
  DataRoots& operator=(const DataRoots&) = delete;

  // The absolute name of what `path` means, which Open opens; of a file the
  // name that it is looked up by, though a link may lead to another root.
  // kInvalidArgument with PATH_OUTSIDE_DATA_ROOTS or PATH_NOT_FOUND and the
  // field.
  absl::StatusOr<std::string> Resolve(const std::string& field,
                                      const std::string& path,
                                      PathKind kind) const;

  // FileOpener: of absolute names under any of the folders.
  absl::StatusOr<InputFile> Open(const std::string& path) const override;
  absl::StatusOr<FoundDirectory> OpenDirectory(
      const std::string& path) const override;

  // Real names of what names are looked up in; the daemon's own last.
  const std::vector<std::string>& roots() const { return searched_; }

 private:
  struct Root {
    std::string given;  // as the operator wrote it
    std::string name;   // real; "": not there yet
    mutable std::atomic<int> fd{-1};
    bool searched = true;
    bool linked = true;  // links from elsewhere may lead there
  };
  // What a name leads to, whatever it is.
  struct Place {
    Descriptor descriptor;  // O_PATH
    std::string root;       // as CheckedFile's
    std::string path;       // below `root`
    std::string name;       // as it was looked up; no link is followed in it
  };

  enum class Whose { kLab, kServer };

  DataRoots() = default;
  absl::Status Add(const std::string& given, Whose whose);
  int DescriptorOf(const Root& root) const;  // -1: it is not there
  std::string NameOf(const Root& root) const;
  // NOT_FOUND, or kInvalidArgument with its reason and without the path's name.
  absl::StatusOr<Place> LookUp(const Root& root,
                               const std::string& relative) const;
  absl::StatusOr<Place> FollowOut(const std::string& path) const;
  absl::StatusOr<Place> LookUpAbsolute(const std::string& path) const;
  std::string RootsText() const;

  std::vector<std::unique_ptr<Root>> roots_;
  std::vector<std::string> searched_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_PATHS_H_
