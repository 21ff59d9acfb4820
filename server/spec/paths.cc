#include "server/spec/paths.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files/checked_file.h"
#include "base/files/open_limit.h"
#include "base/status.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

std::string WithoutTrailingSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// `path` below `root`, or "" when it is not; "." for the root itself.
std::string Below(const std::string& root, const std::string& path) {
  const std::string bare = WithoutTrailingSlashes(path);
  if (bare == root) return ".";
  const std::string prefix = root == "/" ? root : absl::StrCat(root, "/");
  return absl::StartsWith(bare, prefix) ? bare.substr(prefix.size()) : "";
}

absl::Status OpenError(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return FieldError(absl::StatusCode::kNotFound, FieldReason::kPathNotFound,
                        "", "not found");
    case kOpenHangs:
      return absl::UnavailableError(
          absl::StrCat("can't be opened: ", OpenErrorText(error)));
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::UnavailableError(
          absl::StrCat("can't be opened just now: ", strerror(error)));
    case EIO:
    case ESTALE:
      return absl::InternalError(
          absl::StrCat("can't be opened: ", strerror(error)));
    case ELOOP:
      return FieldError(FieldReason::kPathOutsideDataRoots, "",
                        "goes through more links than are followed");
    default:
      return FieldError(FieldReason::kPathNotFound, "",
                        absl::StrCat("can't be opened: ", strerror(error)));
  }
}

// All but kFile are directories.
absl::Status CheckKind(int fd, PathKind kind) {
  struct stat info;
  if (fstat(fd, &info) != 0) return OpenError(errno);
  if (kind == PathKind::kFile && !S_ISREG(info.st_mode)) {
    return FieldError(FieldReason::kInvalidValue, "", "is not a regular file");
  }
  if (kind != PathKind::kFile && !S_ISDIR(info.st_mode)) {
    return FieldError(FieldReason::kInvalidValue, "", "is not a directory");
  }
  return absl::OkStatus();
}

absl::Status About(const std::string& field, const std::string& path,
                   const absl::Status& status) {
  return FieldError(
      ErrorReason(status), field,
      absl::StrCat("\"", path, "\" ", std::string(status.message())));
}

std::string Join(const std::string& folder, const std::string& relative) {
  if (relative == ".") return folder;
  return absl::StrCat(folder, folder == "/" ? "" : "/",
                      WithoutTrailingSlashes(relative));
}

// What an open directory is called now, without links, "." and ".."; "": it has
// gone.  No file system is asked.
std::string NameOfOpen(int descriptor) {
  char name[PATH_MAX];
  const ssize_t size = readlink(
      absl::StrCat("/proc/self/fd/", descriptor).c_str(), name, sizeof(name));
  std::string text(name, size < 0 ? 0 : static_cast<size_t>(size));
  return absl::EndsWith(text, " (deleted)") ? "" : text;
}

int OpenFolder(const std::string& name) {
  if (name.empty()) return -1;
  return OpenWithinLimit(name, [name] {
    return open(name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataRoots>> DataRoots::Create(
    const DataRootsOptions& options) {
  std::unique_ptr<DataRoots> out(new DataRoots);
  for (const std::string& root : options.roots) {
    RETURN_IF_ERROR(out->Add(root, Whose::kLab));
  }
  for (const std::string& root : options.own) {
    RETURN_IF_ERROR(out->Add(root, Whose::kServer));
  }
  if (!options.hub_cache.empty()) {
    auto hub = std::make_unique<Root>();
    hub->given = WithoutTrailingSlashes(options.hub_cache);
    hub->searched = false;
    out->roots_.push_back(std::move(hub));
  }
  return out;
}

absl::Status DataRoots::Add(const std::string& given, Whose whose) {
  const bool own = whose == Whose::kServer;
  auto root = std::make_unique<Root>();
  root->given = WithoutTrailingSlashes(given);
  root->linked = !own;
  root->name = RealPathWithinLimit(given);
  root->fd = OpenFolder(root->name);
  if (root->fd < 0 && errno == kOpenHangs) {
    return absl::UnavailableError(
        absl::StrCat("--data-root: \"", given, "\": ", OpenErrorText(errno)));
  }
  if (root->fd < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--data-root: \"", given, "\" is not a directory that can be opened"));
  }
  searched_.push_back(root->name);
  roots_.push_back(std::move(root));
  return absl::OkStatus();
}

DataRoots::~DataRoots() {
  for (const auto& root : roots_) {
    if (root->fd >= 0) close(root->fd);
  }
}

// The cache's folder may come later; the first descriptor of it stays.
int DataRoots::DescriptorOf(const Root& root) const {
  const int known = root.fd.load();
  if (known >= 0 || !root.name.empty()) return known;
  const int opened = OpenFolder(RealPathWithinLimit(root.given));
  int none = -1;
  if (opened < 0 || root.fd.compare_exchange_strong(none, opened)) {
    return opened;
  }
  close(opened);
  return none;  // another thread's
}

std::string DataRoots::NameOf(const Root& root) const {
  return root.name.empty() ? RealPathWithinLimit(root.given) : root.name;
}

absl::StatusOr<DataRoots::Place> DataRoots::LookUp(
    const Root& root, const std::string& relative) const {
  const int folder = DescriptorOf(root);
  if (folder < 0) return OpenError(errno == kOpenHangs ? errno : ENOENT);
  const std::string name = NameOf(root);
  const std::string path = Join(name, relative);
  Descriptor found = OpenBeneath(folder, relative, Links::kBeneath);
  if (found.get() >= 0) return Place{std::move(found), name, path, path};
  if (errno == EXDEV) return FollowOut(path);
  return OpenError(errno);
}

// Whether what lies outside is there is not told.
absl::StatusOr<DataRoots::Place> DataRoots::FollowOut(
    const std::string& path) const {
  const std::string real = RealPathWithinLimit(path);
  if (real.empty() && errno == kOpenHangs) return OpenError(errno);
  for (const auto& root : roots_) {
    const std::string name = NameOf(*root);
    const std::string relative =
        root->linked && !name.empty() && !real.empty() ? Below(name, real) : "";
    if (relative.empty()) continue;
    Descriptor found = OpenBeneath(DescriptorOf(*root), relative, Links::kNone);
    if (found.get() >= 0) return Place{std::move(found), name, real, path};
    if (errno == kOpenHangs) return OpenError(errno);
  }
  return FieldError(
      FieldReason::kPathOutsideDataRoots, "",
      absl::StrCat("leads out of the data roots (", RootsText(),
                   "); where a link is meant to, the server's admin can name "
                   "what it leads to as a data root"));
}

absl::StatusOr<DataRoots::Place> DataRoots::LookUpAbsolute(
    const std::string& path) const {
  absl::Status missing;
  bool hangs = false;  // a root that may be the one
  for (const auto& root : roots_) {
    const std::string name = NameOf(*root);
    hangs |= name.empty() && errno == kOpenHangs;
    std::string relative = name.empty() ? "" : Below(name, path);
    if (relative.empty()) relative = Below(root->given, path);
    if (relative.empty()) continue;
    auto place = LookUp(*root, relative);
    if (place.ok() || !absl::IsNotFound(place.status())) return place;
    missing = place.status();
  }
  if (hangs) return OpenError(kOpenHangs);
  if (!missing.ok()) return missing;
  return FieldError(
      FieldReason::kPathOutsideDataRoots, "",
      absl::StrCat("is outside the data roots (", RootsText(), ")"));
}

std::string DataRoots::RootsText() const {
  std::vector<std::string> names;
  for (const auto& root : roots_) {
    if (root->linked && root->searched) names.push_back(NameOf(*root));
  }
  return absl::StrJoin(names, ", ");
}

absl::StatusOr<std::string> DataRoots::Resolve(const std::string& field,
                                               const std::string& path,
                                               PathKind kind) const {
  absl::StatusOr<Place> found = OpenError(ENOENT);
  if (!path.empty() && path[0] == '/') {
    found = LookUpAbsolute(path);
  } else {
    for (const auto& root : roots_) {
      if (root->searched) found = LookUp(*root, path);
      if (!absl::IsNotFound(found.status())) break;
    }
  }
  if (absl::IsNotFound(found.status())) {
    const bool absolute = !path.empty() && path[0] == '/';
    return About(field, path,
                 FieldError(FieldReason::kPathNotFound, "",
                            absolute ? "does not exist"
                                     : absl::StrCat("does not exist under the "
                                                    "data roots (",
                                                    RootsText(), ")")));
  }
  if (absl::IsUnavailable(found.status())) {
    return absl::UnavailableError(
        absl::StrCat(field, ": \"", path, "\" ", found.status().message()));
  }
  if (absl::IsInternal(found.status())) {  // of the disk, not of the path
    return absl::InternalError(
        absl::StrCat(field, ": \"", path, "\" ", found.status().message()));
  }
  if (!found.ok()) return About(field, path, found.status());
  const absl::Status right = CheckKind(found->descriptor.get(), kind);
  if (!right.ok()) return About(field, path, right);
  return kind == PathKind::kFile ? found->name : found->path;
}

absl::StatusOr<InputFile> DataRoots::Open(const std::string& path) const {
  auto place = LookUpAbsolute(path);
  if (!place.ok()) {
    return absl::Status(place.status().code(),
                        absl::StrCat(path, ": ", place.status().message()));
  }
  return InputFile::OpenAt(place->descriptor, std::move(place->root),
                           std::move(place->path));
}

absl::StatusOr<FoundDirectory> DataRoots::OpenDirectory(
    const std::string& path) const {
  auto place = LookUpAbsolute(path);
  absl::Status status = place.status();
  if (status.ok()) {
    status = CheckKind(place->descriptor.get(), PathKind::kDirectory);
  }
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(path, ": ", status.message()));
  }
  // Without links, "." and "..", as it is called now.
  place->path = NameOfOpen(place->descriptor.get());
  if (!Below(place->root, place->path).empty()) {
    return FoundDirectory{std::move(place->descriptor), place->root,
                          place->path};
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": was moved away"));
}

}  // namespace roundhouse
