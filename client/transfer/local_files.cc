#include "client/transfer/local_files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files/descriptor.h"
#include "base/files/durable_file.h"
#include "base/files/whole_io.h"
#include "base/status.h"
#include "base/upload_names.h"

namespace roundhouse::client {
namespace {

namespace fs = std::filesystem;

absl::Status ReadError(const std::string& path, int error) {
  const std::string text = absl::StrCat(path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(text)
                         : absl::InvalidArgumentError(text);
}

absl::Status Changed(const LocalFile& file) {
  return absl::FailedPreconditionError(absl::StrCat(
      file.path, ": has changed while it was read; upload it again"));
}

const char* TypeName(mode_t mode) {
  if (S_ISLNK(mode)) return "a link; cp -rL makes a copy without links";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISBLK(mode) || S_ISCHR(mode)) return "a device";
  return "no file";
}

// What `path` is; links are not followed.
absl::StatusOr<struct stat> Look(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return ReadError(path, errno);
  if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return info;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": is ", TypeName(info.st_mode)));
}

absl::Status Walk(const std::string& folder, const std::string& prefix,
                  size_t depth, LocalFiles* found) {
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string path = entry->path().string();
    const std::string part = entry->path().filename().string();
    const std::string name = absl::StrCat(prefix, part);
    if (part[0] == '.') {
      found->left_out.push_back(name);
      continue;
    }
    ASSIGN_OR_RETURN(const struct stat info, Look(path));
    if (S_ISDIR(info.st_mode)) {
      if (depth >= kMaxNameParts) {
        return absl::InvalidArgumentError(absl::StrCat(
            path, ": lies more than ", kMaxNameParts, " folders deep"));
      }
      RETURN_IF_ERROR(Walk(path, absl::StrCat(name, "/"), depth + 1, found));
      continue;
    }
    found->files.push_back(
        {.name = name, .path = path, .identity = IdentityOf(info)});
    if (found->files.size() > kMaxUploadFiles) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than ", kMaxUploadFiles, " files"));
    }
  }
  if (error) return ReadError(folder, error.value());
  return absl::OkStatus();
}

// The file as it was found, open for reading.
absl::StatusOr<Descriptor> OpenSame(const LocalFile& file) {
  Descriptor opened(
      open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (opened.get() < 0) return ReadError(file.path, errno);
  struct stat info;
  if (fstat(opened.get(), &info) != 0) return ReadError(file.path, errno);
  if (!S_ISREG(info.st_mode) || IdentityOf(info) != file.identity) {
    return Changed(file);
  }
  return opened;
}

absl::Status CheckStillSame(const LocalFile& file, int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ReadError(file.path, errno);
  return IdentityOf(info) == file.identity ? absl::OkStatus() : Changed(file);
}

absl::Status HashOne(LocalFile* file,
                     const std::function<bool(uint64_t bytes)>& moved) {
  ASSIGN_OR_RETURN(const Descriptor opened, OpenSame(*file));
  Sha256 hash;
  std::string piece(kIoPieceBytes, '\0');
  for (uint64_t at = 0; at < file->identity.size_bytes;) {
    const auto got = ReadAt(opened.get(), at, piece.data(), piece.size());
    if (!got.has_value()) return ReadError(file->path, errno);
    if (*got == 0) return Changed(*file);
    hash.Add(absl::string_view(piece.data(), *got));
    at += *got;
    if (!moved(*got)) return absl::CancelledError("interrupted");
  }
  file->sha256 = hash.Finish();
  return CheckStillSame(*file, opened.get());
}

}  // namespace

uint64_t LocalFiles::bytes() const {
  uint64_t sum = 0;
  for (const LocalFile& file : files) sum += file.identity.size_bytes;
  return sum;
}

absl::StatusOr<LocalFiles> FindLocalFiles(const std::string& path) {
  std::error_code error;
  // What is named itself may be a link.
  const fs::path real = fs::canonical(path, error);
  if (error) return ReadError(path, error.value());
  ASSIGN_OR_RETURN(const struct stat info, Look(real.string()));
  LocalFiles found;
  if (S_ISDIR(info.st_mode)) {
    RETURN_IF_ERROR(Walk(real.string(), "", 1, &found));
  } else {
    found.files.push_back({.name = fs::path(path).filename().string(),
                           .path = real.string(),
                           .identity = IdentityOf(info)});
  }
  std::sort(found.files.begin(), found.files.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  std::vector<std::string> names;
  for (const LocalFile& file : found.files) names.push_back(file.name);
  const absl::Status sound = CheckRelativeNames(names);
  if (sound.ok()) return found;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", sound.message()));
}

absl::Status HashLocalFiles(LocalFiles* files,
                            const std::function<bool(uint64_t bytes)>& moved) {
  for (LocalFile& file : files->files) RETURN_IF_ERROR(HashOne(&file, moved));
  return absl::OkStatus();
}

absl::Status ReadLocalFile(const LocalFile& file, uint64_t offset, size_t bytes,
                           std::string* target) {
  ASSIGN_OR_RETURN(const Descriptor opened, OpenSame(file));
  target->resize(bytes);
  const auto got = ReadAt(opened.get(), offset, target->data(), bytes);
  if (!got.has_value()) return ReadError(file.path, errno);
  if (*got < bytes) return Changed(file);
  return CheckStillSame(file, opened.get());
}

}  // namespace roundhouse::client
