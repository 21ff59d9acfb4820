#include "server/spec/paths.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

int OpenBeneath(int root_fd, const std::string& relative) {
  struct open_how how = {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  long fd = 0;
  do {
    fd = syscall(SYS_openat2, root_fd, relative.c_str(), &how, sizeof(how));
  } while (fd < 0 && errno == EAGAIN);
  return static_cast<int>(fd);
}

absl::Status OpenError(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return FieldError(absl::StatusCode::kNotFound, "PATH_NOT_FOUND", "",
                        "not found");
    case EXDEV:
      return FieldError("PATH_OUTSIDE_DATA_ROOTS", "",
                        "leads out of the data roots");
    case ELOOP:
      return FieldError("PATH_OUTSIDE_DATA_ROOTS", "",
                        "goes through a symbolic link, which is not followed");
    default:
      return FieldError("PATH_NOT_FOUND", "",
                        absl::StrCat("can't be opened: ", strerror(error)));
  }
}

absl::Status CheckKind(int fd, PathKind kind) {
  struct stat info;
  if (fstat(fd, &info) != 0) return OpenError(errno);
  if (kind == PathKind::kFile && !S_ISREG(info.st_mode)) {
    return FieldError("INVALID_VALUE", "", "is not a regular file");
  }
  if (kind != PathKind::kFile && !S_ISDIR(info.st_mode)) {
    return FieldError("INVALID_VALUE", "", "is not a directory");
  }
  return absl::OkStatus();
}

absl::Status About(const std::string& field, const std::string& path,
                   const absl::Status& status) {
  return FieldError(
      ErrorReason(status), field,
      absl::StrCat(field, ": \"", path, "\" ", std::string(status.message())));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataRoots>> DataRoots::Open(
    const std::vector<std::string>& roots) {
  std::unique_ptr<DataRoots> out(new DataRoots);
  for (const std::string& root : roots) {
    char* real = realpath(root.c_str(), nullptr);
    const std::string name = real == nullptr ? "" : real;
    free(real);
    const int fd = name.empty()
                       ? -1
                       : open(name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--data-root: \"", root, "\" is not a directory that can be opened"));
    }
    out->given_.push_back(WithoutTrailingSlashes(root));
    out->names_.push_back(name);
    out->fds_.push_back(fd);
  }
  return out;
}

DataRoots::~DataRoots() {
  for (int fd : fds_) close(fd);
}

absl::Status DataRoots::LookUp(size_t root, const std::string& relative,
                               PathKind kind) const {
  const int fd = OpenBeneath(fds_[root], relative);
  if (fd < 0) return OpenError(errno);
  const absl::Status status = CheckKind(fd, kind);
  close(fd);
  return status;
}

absl::StatusOr<std::string> DataRoots::Resolve(const std::string& field,
                                               const std::string& path,
                                               PathKind kind) const {
  const bool absolute = !path.empty() && path[0] == '/';
  bool under_a_root = !absolute;
  for (size_t i = 0; i < fds_.size(); ++i) {
    std::string relative = path;
    if (absolute) {
      relative = Below(names_[i], path);
      if (relative.empty()) relative = Below(given_[i], path);
      if (relative.empty()) continue;
      under_a_root = true;
    }
    const absl::Status found = LookUp(i, relative, kind);
    if (found.ok()) {
      if (relative == ".") return names_[i];
      return absl::StrCat(names_[i], names_[i] == "/" ? "" : "/",
                          WithoutTrailingSlashes(relative));
    }
    if (!absl::IsNotFound(found)) return About(field, path, found);
  }
  if (!under_a_root) {
    return About(field, path,
                 FieldError("PATH_OUTSIDE_DATA_ROOTS", "",
                            absl::StrCat("is outside the data roots (",
                                         absl::StrJoin(names_, ", "), ")")));
  }
  return About(field, path,
               FieldError("PATH_NOT_FOUND", "",
                          absl::StrCat("is not under the data roots (",
                                       absl::StrJoin(names_, ", "), ")")));
}

}  // namespace roundhouse
