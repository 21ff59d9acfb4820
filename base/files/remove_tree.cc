#include "base/files/remove_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/files/descriptor.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr char kDoing[] = "removing";

absl::StatusOr<std::vector<std::string>> NamesIn(int folder,
                                                 const std::string& path) {
  Descriptor copy(fcntl(folder, F_DUPFD_CLOEXEC, 0));
  DIR* const list = copy.get() < 0 ? nullptr : fdopendir(copy.get());
  if (list == nullptr) return FileError(kDoing, path, errno);
  copy.Release();  // the list's now
  std::vector<std::string> names;
  errno = 0;
  for (const dirent* entry = readdir(list); entry != nullptr;
       entry = readdir(list)) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error = errno;
  closedir(list);
  if (error != 0) return FileError(kDoing, path, error);
  return names;
}

absl::Status RemoveAt(FileSite site, int folder, const std::string& name,
                      const std::string& path, int depth);

// Removes what is in the folder.
absl::Status Empty(FileSite site, int parent, const std::string& name,
                   const std::string& path, int depth) {
  if (depth == kMaxRemovedDepth) {
    return absl::FailedPreconditionError(
        absl::StrCat(kDoing, " ", path, ": more than ", kMaxRemovedDepth,
                     " folders within each other; remove it by hand"));
  }
  const Descriptor folder(openat(
      parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.get() < 0) return FileError(kDoing, path, errno);
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   NamesIn(folder.get(), path));
  absl::Status first;
  for (const std::string& inside : names) {
    const absl::Status removed = RemoveAt(
        site, folder.get(), inside, absl::StrCat(path, "/", inside), depth + 1);
    if (first.ok()) first = removed;
  }
  return first;
}

absl::Status RemoveAt(FileSite site, int folder, const std::string& name,
                      const std::string& path, int depth) {
  struct stat info;
  if (fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? absl::OkStatus() : FileError(kDoing, path, errno);
  }
  const bool is_folder = S_ISDIR(info.st_mode);
  if (is_folder) RETURN_IF_ERROR(Empty(site, folder, name, path, depth));
  const int flags = is_folder ? AT_REMOVEDIR : 0;
  if (file_calls::UnlinkAt(site, folder, name, flags) == 0 || errno == ENOENT) {
    return absl::OkStatus();
  }
  return FileError(kDoing, path, errno);
}

}  // namespace

absl::Status RemoveTree(FileSite site, const std::string& path) {
  return RemoveAt(site, AT_FDCWD, path, path, 0);
}

}  // namespace roundhouse
