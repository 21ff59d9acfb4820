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
// A root belongs to everybody, to a project or to a user.  The root that a name
// lies in, the innermost of several, says who may use the name, and a link may
// lead only to what everybody may use, or to a root of the same owner.  So a
// name never comes to mean what its user may not read, whoever moves links.
//
// Thread-safe after Create().
#ifndef ROUNDHOUSE_SERVER_SPEC_PATHS_H_
#define ROUNDHOUSE_SERVER_SPEC_PATHS_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
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

// Who may use what lies in a root.
struct RootOwner {
  enum class Kind {
    kEverybody,
    kProject,
    kUser,
    // The daemon's own: whoever resolves names says of each whose it is.
    kServer,
  };
  Kind kind = Kind::kEverybody;
  std::string name;  // of the project or the user
  bool operator==(const RootOwner&) const = default;
};

// The flag that names roots of this owner.
inline const char* RootFlag(RootOwner::Kind kind) {
  switch (kind) {
    case RootOwner::Kind::kEverybody:
      return "--data-root";
    case RootOwner::Kind::kProject:
      return "--project-root";
    case RootOwner::Kind::kUser:
      return "--user-root";
    case RootOwner::Kind::kServer:
      break;
  }
  return "--state-dir";
}

// Whether whoever asks may use roots of this owner.
using MayUseRoot = std::function<bool(const RootOwner&)>;
inline bool UsesEveryRoot(const RootOwner&) { return true; }

struct OwnedRoot {
  RootOwner owner;
  std::string path;
  bool operator==(const OwnedRoot&) const = default;
};

struct DataRootsOptions {
  // The admin's; names are looked up in them: everybody's first.
  std::vector<std::string> roots;
  std::vector<OwnedRoot> owned;
  // The daemon's own: names are looked up in them, after the others.  A link
  // from elsewhere that leads there is taken for what it leads to.
  std::vector<std::string> own;
  // Nothing in it means anything, but for what other roots in it have; "":
  // there is none.
  std::string closed;
  // Files are opened in it, names are not looked up.  It need not be there yet;
  // "": there is none.
  std::string hub_cache;
};

class DataRoots final : public FileOpener {
 public:
  // kInvalidArgument for a root that is not a directory, that belongs to two,
  // or that others may rename because of where it lies.  Roots are resolved
  // once, symbolic links in their own names included.
  static absl::StatusOr<std::unique_ptr<DataRoots>> Create(
      const DataRootsOptions& options);
  ~DataRoots() override;
  DataRoots(const DataRoots&) = delete;
  DataRoots& operator=(const DataRoots&) = delete;

  // The absolute name of what `path` means, which Open opens; of a file the
  // name that it is looked up by, though a link may lead to another root.
  // Roots that `may` says no to are not there.  kInvalidArgument with
  // PATH_OUTSIDE_DATA_ROOTS or PATH_NOT_FOUND and the field.
  absl::StatusOr<std::string> Resolve(const std::string& field,
                                      const std::string& path, PathKind kind,
                                      const MayUseRoot& may) const;

  // What Resolve says of a name that leads to nothing.
  absl::Status NotThere(const std::string& field, const std::string& path,
                        const MayUseRoot& may) const;

  // The daemon's own root that a name lies in which Resolve gave, as `own` has
  // it, and the first part of the name below.  nullopt: in none.
  struct OwnPlace {
    std::string root;
    std::string first;  // "": the root itself
  };
  std::optional<OwnPlace> OwnPlaceOf(const std::string& path) const;

  // FileOpener: of absolute names under any of the folders, whoever asks.
  absl::StatusOr<InputFile> Open(const std::string& path) const override;
  absl::StatusOr<FoundDirectory> OpenDirectory(
      const std::string& path) const override;

  // Real names of what names are looked up in; the daemon's own last.
  std::vector<std::string> roots(const MayUseRoot& may = UsesEveryRoot) const;

 private:
  struct Root {
    std::string given;  // as the operator wrote it
    std::string name;   // real; "": not there yet
    mutable std::atomic<int> fd{-1};
    RootOwner owner;
    bool searched = true;
    bool closed = false;
  };
  // What a name leads to, whatever it is.
  struct Place {
    Descriptor descriptor;  // O_PATH
    std::string root;       // as CheckedFile's
    std::string path;       // below `root`
    std::string name;       // as it was looked up; no link is followed in it
    bool by_link = false;   // to the daemon's own, from elsewhere
  };

  DataRoots() = default;
  absl::Status Add(const std::string& given, const RootOwner& owner);
  absl::Status CheckNested() const;
  std::string LateName(const Root& root) const;
  int DescriptorOf(const Root& root) const;  // -1: it is not there
  std::string NameOf(const Root& root) const;
  // The root that a real name lies in, the innermost; null: none.
  const Root* RootOf(const std::string& path) const;
  // Whether a link in `from` may lead to `to`.
  static bool MayLink(const Root& from, const Root& to);
  // NOT_FOUND, or kInvalidArgument with its reason and without the path's name.
  absl::StatusOr<Place> LookUp(const Root& root, const std::string& relative,
                               const MayUseRoot& may) const;
  absl::StatusOr<Place> LookUpIn(const Root& root, const std::string& relative,
                                 const MayUseRoot& may) const;
  absl::StatusOr<Place> FollowOut(const Root& from, const std::string& path,
                                  const MayUseRoot& may) const;
  absl::StatusOr<Place> LookUpAbsolute(const std::string& path,
                                       const MayUseRoot& may) const;
  absl::StatusOr<Place> LookUpToOpen(const std::string& path) const;
  absl::StatusOr<Place> LookUpRelative(const std::string& path,
                                       const MayUseRoot& may) const;
  absl::Status Outside(const MayUseRoot& may) const;
  absl::Status LeadsOut(const MayUseRoot& may) const;
  std::string RootsText(const MayUseRoot& may) const;

  std::vector<std::unique_ptr<Root>> roots_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_PATHS_H_
