#include "client/transfer/own_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/files/descriptor.h"
#include "base/status.h"
#include "client/files.h"

namespace roundhouse::client {
namespace {

namespace fs = std::filesystem;

// What was replaced, where a file system can't exchange two names.
constexpr char kOldSuffix[] = ".old";

std::string KeyIn(const std::string& folder) {
  return absl::StrCat(folder, "/", kFolderKeyName);
}

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

bool IsOwn(const std::string& folder) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(folder, error)) &&
         fs::is_regular_file(fs::symlink_status(KeyIn(folder), error));
}

bool CannotDo(int error) { return error == EINVAL || error == ENOSYS; }

absl::Status IsThereAlready(const std::string& directory) {
  return absl::AlreadyExistsError(
      absl::StrCat(directory, ": is there already; --force replaces it"));
}

// Moves what is at `directory` away, and the folder to its place.
absl::Status SwapInTwoSteps(const std::string& folder,
                            const std::string& directory,
                            const RenameCall& rename) {
  const std::string old = folder + kOldSuffix;
  RETURN_IF_ERROR(RemoveOwnFolder(old));
  if (const int error = rename(directory, old, 0); error != 0) {
    return DiskError(directory, error);
  }
  const int error = rename(folder, directory, 0);
  if (error == 0) return RemoveOwnFolder(old);
  rename(old, directory, 0);
  return DiskError(directory, error);
}

// What is there gets our file first, so that a death leaves nothing that the
// next try would not dare to remove.
absl::Status Replace(const std::string& folder, const std::string& directory,
                     const RenameCall& rename) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(directory, error))) {
    fs::remove(directory, error);
    if (error) return DiskError(directory, error.value());
    const int failed = rename(folder, directory, 0);
    return failed == 0 ? absl::OkStatus() : DiskError(directory, failed);
  }
  const bool own = IsOwn(directory);
  if (!own) RETURN_IF_ERROR(WriteTextFile(KeyIn(directory), "replaced\n"));
  const int failed = rename(folder, directory, RENAME_EXCHANGE);
  if (failed == 0) return RemoveOwnFolder(folder);
  const absl::Status swapped = CannotDo(failed)
                                   ? SwapInTwoSteps(folder, directory, rename)
                                   : DiskError(directory, failed);
  if (!swapped.ok() && !own) fs::remove(KeyIn(directory), error);
  return swapped;
}

}  // namespace

int RenameOnDisk(const std::string& from, const std::string& to,
                 unsigned flags) {
  return renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0
             ? 0
             : errno;
}

absl::Status DiskError(const std::string& path, int error) {
  const std::string text = absl::StrCat(path, ": ", std::strerror(error));
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(text)
                                            : absl::InvalidArgumentError(text);
}

absl::Status SyncPath(const std::string& path) {
  const Descriptor opened(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (opened.get() >= 0 && fsync(opened.get()) == 0) return absl::OkStatus();
  return DiskError(path, errno);
}

absl::Status RemoveOwnFolder(const std::string& folder) {
  if (!IsThere(folder)) return absl::OkStatus();
  std::error_code error;
  if (!IsOwn(folder)) {
    // An empty one is what a death leaves between the folder and its file.
    if (rmdir(folder.c_str()) == 0) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat(
        folder, ": is there, and is not what a download left (it has no file ",
        kFolderKeyName,
        "); move it away, or choose another directory with --output"));
  }
  // Our file goes last: until then the next try knows the folder as ours.
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator();
       entries.increment(error)) {
    if (entries->path().filename() == kFolderKeyName) continue;
    fs::remove_all(entries->path(), error);
    if (error) break;
  }
  if (!error) fs::remove(KeyIn(folder), error);
  if (!error) fs::remove(folder, error);
  return error ? DiskError(folder, error.value()) : absl::OkStatus();
}

absl::Status PublishFolder(const std::string& folder,
                           const std::string& directory, WhatIsThere what,
                           const RenameCall& rename) {
  int failed = rename(folder, directory, RENAME_NOREPLACE);
  if (CannotDo(failed)) {
    failed = IsThere(directory) ? EEXIST : rename(folder, directory, 0);
  }
  if (failed == EEXIST && what == WhatIsThere::kStays) {
    return IsThereAlready(directory);
  }
  if (failed == EEXIST) {
    RETURN_IF_ERROR(Replace(folder, directory, rename));
  } else if (failed != 0) {
    return DiskError(directory, failed);
  }
  std::error_code error;
  fs::remove(KeyIn(directory), error);
  return error ? DiskError(directory, error.value()) : absl::OkStatus();
}

}  // namespace roundhouse::client
