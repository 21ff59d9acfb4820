#include "server/spec/paths.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/files/checked_file.h"
#include "base/files/open_limit.h"
#include "base/status.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

std::string FolderOf(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

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

// Without "." and empty parts; ".." stays, for it may follow a link.
std::string Join(const std::string& folder, const std::string& relative) {
  std::string path = folder == "/" ? "" : folder;
  for (const absl::string_view part : absl::StrSplit(relative, '/')) {
    if (!part.empty() && part != ".") absl::StrAppend(&path, "/", part);
  }
  return path.empty() ? "/" : path;
}

// What an open directory is called now, without links, "." and ".."; "": it has
// gone.  No file system is asked.
std::string NameOfOpen(int descriptor) {
  char name[PATH_MAX];
  const ssize_t size = readlink(
      absl::StrCat("/proc/self/fd/", descriptor).c_str(), name, sizeof(name));
  struct stat info;
  if (size < 0 || fstat(descriptor, &info) != 0 || info.st_nlink == 0) {
    return "";
  }
  return std::string(name, static_cast<size_t>(size));
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
    RETURN_IF_ERROR(out->Add(root, {}));
  }
  for (const OwnedRoot& root : options.owned) {
    RETURN_IF_ERROR(out->Add(root.path, root.owner));
  }
  const RootOwner server = {RootOwner::Kind::kServer, ""};
  for (const std::string& root : options.own) {
    RETURN_IF_ERROR(out->Add(root, server));
  }
  if (!options.closed.empty()) {
    RETURN_IF_ERROR(out->Add(options.closed, server));
    Root& closed = *out->roots_.back();
    closed.searched = false;
    closed.closed = true;
    for (const auto& root : out->roots_) {
      if (root.get() == &closed || root->name != closed.name) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--data-root: \"", root->given,
                       "\" is the state directory, which has the daemon's own "
                       "files"));
    }
  }
  RETURN_IF_ERROR(out->CheckNested());
  if (!options.hub_cache.empty()) {
    auto hub = std::make_unique<Root>();
    hub->given = WithoutTrailingSlashes(options.hub_cache);
    hub->searched = false;
    out->roots_.push_back(std::move(hub));
  }
  return out;
}

absl::Status DataRoots::Add(const std::string& given, const RootOwner& owner) {
  const char* const flag = RootFlag(owner.kind);
  auto root = std::make_unique<Root>();
  root->given = WithoutTrailingSlashes(given);
  root->owner = owner;
  root->name = RealPathWithinLimit(given);
  root->fd = OpenFolder(root->name);
  if (root->fd < 0 && errno == kOpenHangs) {
    return absl::UnavailableError(
        absl::StrCat(flag, ": \"", given, "\": ", OpenErrorText(errno)));
  }
  if (root->fd < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": \"", given, "\" is not a directory that can be opened"));
  }
  for (const auto& other : roots_) {
    if (other->name != root->name || other->owner == owner ||
        owner.kind == RootOwner::Kind::kServer) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": \"", given,
                     "\" is a root of somebody else already; a folder belongs "
                     "to everybody, to one project or to one user"));
  }
  roots_.push_back(std::move(root));
  return absl::OkStatus();
}

// Whoever may rename a root that lies in another one takes it out of its
// owner's hands: its files then have names of the outer root alone.
absl::Status DataRoots::CheckNested() const {
  for (const auto& root : roots_) {
    if (root->owner.name.empty()) continue;
    for (std::string folder = FolderOf(root->name); folder != "/";
         folder = FolderOf(folder)) {
      struct stat info;
      if (RootOf(folder) == nullptr) break;
      if (stat(folder.c_str(), &info) != 0) return OpenError(errno);
      const bool sticky = (info.st_mode & S_ISVTX) != 0;
      const bool theirs = info.st_uid != 0 && info.st_uid != geteuid();
      if (!theirs && (sticky || (info.st_mode & (S_IWGRP | S_IWOTH)) == 0)) {
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat(
          RootFlag(root->owner.kind), ": \"", root->given, "\" lies in ",
          folder,
          ", in which others may rename it, and so read it as that folder's; ",
          theirs ? "give the folder to root" : "chmod +t it", ", or move it"));
    }
  }
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
  const int opened = OpenFolder(LateName(root));
  int none = -1;
  if (opened < 0 || root.fd.compare_exchange_strong(none, opened)) {
    return opened;
  }
  close(opened);
  return none;  // another thread's
}

std::string DataRoots::NameOf(const Root& root) const {
  if (!root.name.empty()) return root.name;
  const int known = root.fd.load();
  errno = ENOENT;
  return known >= 0 ? NameOfOpen(known) : LateName(root);
}

// Whoever makes the folder late must not take another root's place with it.
std::string DataRoots::LateName(const Root& root) const {
  std::string real = RealPathWithinLimit(root.given);
  for (const auto& other : roots_) {
    if (!real.empty() && !other->name.empty() &&
        !Below(real, other->name).empty()) {
      real.clear();
      errno = ENOENT;
    }
  }
  return real;
}

std::vector<std::string> DataRoots::roots(const MayUseRoot& may) const {
  std::vector<std::string> names;
  for (const auto& root : roots_) {
    if (root->searched && may(root->owner)) names.push_back(root->name);
  }
  return names;
}

const DataRoots::Root* DataRoots::RootOf(const std::string& path) const {
  const Root* innermost = nullptr;
  size_t length = 0;
  for (const auto& root : roots_) {
    const std::string name = NameOf(*root);
    if (name.empty() || name.size() < length || Below(name, path).empty()) {
      continue;
    }
    innermost = root.get();
    length = name.size();
  }
  return innermost;
}

bool DataRoots::MayLink(const Root& from, const Root& to) {
  if (&from == &to) return true;
  if (to.owner.kind == RootOwner::Kind::kServer) return false;
  return to.owner.kind == RootOwner::Kind::kEverybody || to.owner == from.owner;
}

std::optional<DataRoots::OwnPlace> DataRoots::OwnPlaceOf(
    const std::string& path) const {
  const Root* const root = RootOf(path);
  if (root == nullptr || root->owner.kind != RootOwner::Kind::kServer) {
    return std::nullopt;
  }
  const std::string below = Below(NameOf(*root), path);
  return OwnPlace{root->given,
                  below == "." ? "" : below.substr(0, below.find('/'))};
}

absl::StatusOr<DataRoots::Place> DataRoots::LookUp(
    const Root& root, const std::string& relative,
    const MayUseRoot& may) const {
  const std::string path = Join(NameOf(root), relative);
  const Root* const innermost = RootOf(path);
  if (innermost == nullptr || innermost == &root) {
    return LookUpIn(root, relative, may);
  }
  // As if it were not there: an absolute name gets to the root itself, too.
  if (!may(innermost->owner)) return OpenError(ENOENT);
  return LookUpIn(*innermost, Below(NameOf(*innermost), path), may);
}

absl::StatusOr<DataRoots::Place> DataRoots::LookUpIn(
    const Root& root, const std::string& relative,
    const MayUseRoot& may) const {
  if (root.closed || !may(root.owner)) return Outside(may);
  const int folder = DescriptorOf(root);
  if (folder < 0) return OpenError(errno == kOpenHangs ? errno : ENOENT);
  const std::string name = NameOf(root);
  const std::string path = Join(name, relative);
  Descriptor found = OpenBeneath(folder, relative, Links::kBeneath);
  if (found.get() < 0) {
    return errno == EXDEV ? FollowOut(root, path, may) : OpenError(errno);
  }
  // Beneath a root lie others, whose owners differ.
  const std::string real = NameOfOpen(found.get());
  if (real.empty()) return OpenError(ENOENT);
  const Root* const reached = RootOf(real);
  // As where there is nothing: what lies there is not told.
  if (reached == nullptr || reached->closed) return OpenError(ENOENT);
  if (reached->owner.kind == RootOwner::Kind::kServer) {
    return Place{std::move(found), NameOf(*reached), real, real,
                 reached != &root};
  }
  if (!MayLink(root, *reached)) return OpenError(ENOENT);
  return Place{std::move(found), name, path, path};
}

// Whether what lies outside is there is not told.
absl::StatusOr<DataRoots::Place> DataRoots::FollowOut(
    const Root& from, const std::string& path, const MayUseRoot& may) const {
  const std::string real = RealPathWithinLimit(path);
  if (real.empty() && errno == kOpenHangs) return OpenError(errno);
  const Root* const to = real.empty() ? nullptr : RootOf(real);
  if (to == nullptr || to->closed || !MayLink(from, *to)) return LeadsOut(may);
  const std::string name = NameOf(*to);
  Descriptor found =
      OpenBeneath(DescriptorOf(*to), Below(name, real), Links::kNone);
  if (found.get() < 0) {
    return errno == kOpenHangs ? OpenError(errno) : LeadsOut(may);
  }
  return Place{std::move(found), name, real, path};
}

absl::Status DataRoots::LeadsOut(const MayUseRoot& may) const {
  return FieldError(
      FieldReason::kPathOutsideDataRoots, "",
      absl::StrCat("leads out of the data roots (", RootsText(may),
                   "); where a link is meant to, the server's admin can name "
                   "what it leads to as a data root"));
}

absl::Status DataRoots::Outside(const MayUseRoot& may) const {
  return FieldError(
      FieldReason::kPathOutsideDataRoots, "",
      absl::StrCat("is outside the data roots (", RootsText(may), ")"));
}

absl::StatusOr<DataRoots::Place> DataRoots::LookUpAbsolute(
    const std::string& path, const MayUseRoot& may) const {
  absl::Status missing;
  bool hangs = false;  // a root that may be the one
  // The rest of the path below each root; the shortest is the innermost's.
  std::multimap<size_t, std::pair<const Root*, std::string>> below;
  for (const auto& root : roots_) {
    const std::string name = NameOf(*root);
    hangs |= name.empty() && errno == kOpenHangs;
    std::string relative = name.empty() ? "" : Below(name, path);
    if (relative.empty()) relative = Below(root->given, path);
    if (relative.empty()) continue;
    const size_t length = relative.size();
    below.emplace(length, std::pair(root.get(), std::move(relative)));
  }
  for (const auto& [length, one] : below) {
    auto place = LookUp(*one.first, one.second, may);
    if (place.ok() || !absl::IsNotFound(place.status())) return place;
    missing = place.status();
  }
  if (hangs) return OpenError(kOpenHangs);
  return missing.ok() ? Outside(may) : missing;
}

absl::StatusOr<DataRoots::Place> DataRoots::LookUpRelative(
    const std::string& path, const MayUseRoot& may) const {
  absl::StatusOr<Place> found = OpenError(ENOENT);
  for (const auto& root : roots_) {
    if (!root->searched || !may(root->owner)) continue;
    found = LookUp(*root, path, may);
    if (!absl::IsNotFound(found.status())) break;
  }
  return found;
}

std::string DataRoots::RootsText(const MayUseRoot& may) const {
  std::vector<std::string> names;
  for (const auto& root : roots_) {
    if (root->owner.kind != RootOwner::Kind::kServer && root->searched &&
        may(root->owner)) {
      names.push_back(NameOf(*root));
    }
  }
  return absl::StrJoin(names, ", ");
}

absl::Status DataRoots::NotThere(const std::string& field,
                                 const std::string& path,
                                 const MayUseRoot& may) const {
  const bool absolute = !path.empty() && path[0] == '/';
  return About(field, path,
               FieldError(FieldReason::kPathNotFound, "",
                          absolute ? "does not exist"
                                   : absl::StrCat("does not exist under the "
                                                  "data roots (",
                                                  RootsText(may), ")")));
}

absl::StatusOr<std::string> DataRoots::Resolve(const std::string& field,
                                               const std::string& path,
                                               PathKind kind,
                                               const MayUseRoot& may) const {
  const bool absolute = !path.empty() && path[0] == '/';
  const absl::StatusOr<Place> found =
      absolute ? LookUpAbsolute(path, may) : LookUpRelative(path, may);
  if (absl::IsNotFound(found.status())) return NotThere(field, path, may);
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

// A name that Resolve gave leads to the daemon's own by no link.
absl::StatusOr<DataRoots::Place> DataRoots::LookUpToOpen(
    const std::string& path) const {
  auto place = LookUpAbsolute(path, UsesEveryRoot);
  if (place.ok() && place->by_link) return OpenError(ENOENT);
  return place;
}

absl::StatusOr<InputFile> DataRoots::Open(const std::string& path) const {
  auto place = LookUpToOpen(path);
  if (!place.ok()) {
    return absl::Status(place.status().code(),
                        absl::StrCat(path, ": ", place.status().message()));
  }
  return InputFile::OpenAt(place->descriptor, std::move(place->root),
                           std::move(place->path));
}

absl::StatusOr<FoundDirectory> DataRoots::OpenDirectory(
    const std::string& path) const {
  auto place = LookUpToOpen(path);
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
