#include "server/weights/export_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/byte_text.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/files/file_site.h"
#include "base/files/whole_io.h"
#include "base/kill_point.h"
#include "base/model/directory.h"
#include "base/status.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

absl::Status SystemError(const std::string& path, const char* what, int error) {
  return absl::Status(
      FileError(what, path, error).code(),
      absl::StrCat(path, ": ", what, ": ", std::strerror(error)));
}

absl::Status MovedAway(const std::string& path) {
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": was moved or replaced while the export was written"));
}

absl::Status WriteText(int fd, absl::string_view text,
                       const std::string& path) {
  const bool written = WriteAll(text, [fd](const char* from, size_t bytes) {
    return file_calls::Write(kExportText, fd, from, bytes);
  });
  return written ? absl::OkStatus() : SystemError(path, "write", errno);
}

absl::Status Sync(FileSite site, int fd, const std::string& path) {
  if (file_calls::Sync(site, fd) == 0) return absl::OkStatus();
  return SystemError(path, "fsync", errno);
}

// A new directory is ours when this user made it: a folder's owner who put
// another one in its place did not.
Descriptor OpenOwn(int parent, const std::string& name) {
  Descriptor directory(openat(parent, name.c_str(),
                              O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (directory.get() >= 0 && fstat(directory.get(), &info) == 0 &&
      info.st_uid == geteuid()) {
    return directory;
  }
  return Descriptor();
}

// What is no directory.
void RemoveFilesIn(int directory) {
  DIR* const list = fdopendir(dup(directory));
  if (list == nullptr) return;
  std::vector<std::string> names;
  for (const dirent* entry = readdir(list); entry != nullptr;
       entry = readdir(list)) {
    names.emplace_back(entry->d_name);
  }
  closedir(list);
  for (const std::string& name : names) {
    file_calls::UnlinkAt(kExportRemove, directory, name, 0);
  }
}

}  // namespace

ExportDirectory::ExportDirectory(FoundDirectory parent, std::string name,
                                 Descriptor directory)
    : parent_(std::move(parent)),
      name_(std::move(name)),
      directory_(std::move(directory)) {}

absl::StatusOr<std::unique_ptr<ExportDirectory>> ExportDirectory::Make(
    const FileOpener& files, const std::string& temporary, uint64_t bytes) {
  const fs::path path(temporary);
  ASSIGN_OR_RETURN(FoundDirectory parent,
                   files.OpenDirectory(path.parent_path().string()));
  const std::string name = path.filename().string();
  const int folder = parent.descriptor.get();
  // What was allowed is the folder of that name, not one that came since.
  if (parent.path != path.parent_path().string()) return MovedAway(temporary);
  if (file_calls::MakeFolderAt(kExportFolder, folder, name, kFolderMode) != 0) {
    return SystemError(temporary, "cannot be made", errno);
  }
  Descriptor directory = OpenOwn(folder, name);
  if (directory.get() < 0) return MovedAway(temporary);
  std::unique_ptr<ExportDirectory> made(
      new ExportDirectory(std::move(parent), name, std::move(directory)));
  struct statvfs disk;
  if (fstatvfs(made->directory_.get(), &disk) != 0) {
    return SystemError(temporary, "free disk", errno);
  }
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (free >= bytes) return made;
  return absl::ResourceExhaustedError(
      absl::StrCat(temporary, ": the export needs ", ByteText(bytes),
                   " of disk, ", ByteText(free), " are free"));
}

ExportDirectory::~ExportDirectory() {
  if (!finished_) Remove();
}

std::string ExportDirectory::PathOf(const std::string& name) const {
  return absl::StrCat(parent_.path == "/" ? "" : parent_.path, "/", name_, "/",
                      name);
}

absl::StatusOr<Descriptor> ExportDirectory::NewFile(const std::string& name) {
  int folder = directory_.get();
  absl::string_view last = name;
  if (absl::ConsumePrefix(&last, absl::StrCat(kChatTemplatesFolder, "/"))) {
    RETURN_IF_ERROR(MakeTemplatesFolder());
    folder = templates_.get();
  }
  Descriptor file(file_calls::OpenAt(
      kExportHeader, folder, std::string(last),
      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  if (file.get() >= 0) return file;
  return SystemError(PathOf(name), "cannot be made", errno);
}

absl::Status ExportDirectory::MakeTemplatesFolder() {
  if (templates_.get() >= 0) return absl::OkStatus();
  if (file_calls::MakeFolderAt(kExportFolder, directory_.get(),
                               kChatTemplatesFolder, kFolderMode) != 0) {
    return SystemError(PathOf(kChatTemplatesFolder), "cannot be made", errno);
  }
  templates_ = OpenOwn(directory_.get(), kChatTemplatesFolder);
  if (templates_.get() >= 0) return absl::OkStatus();
  return MovedAway(PathOf(kChatTemplatesFolder));
}

absl::StatusOr<CheckedFile> ExportDirectory::Create(const std::string& name,
                                                    const std::string& begin) {
  ASSIGN_OR_RETURN(const Descriptor file, NewFile(name));
  const std::string path = PathOf(name);
  RETURN_IF_ERROR(WriteText(file.get(), begin, path));
  RETURN_IF_ERROR(Sync(kExportHeader, file.get(), path));
  struct stat info;
  if (fstat(file.get(), &info) != 0) return SystemError(path, "stat", errno);
  return CheckedFile{parent_.root, path, IdentityOf(info)};
}

absl::Status ExportDirectory::Write(const std::string& name,
                                    const std::string& text) {
  return Create(name, text).status();
}

absl::Status ExportDirectory::Copy(const CheckedFile& source,
                                   const std::string& name) {
  ASSIGN_OR_RETURN(const Descriptor from, OpenChecked(source));
  const std::string path = PathOf(name);
  ASSIGN_OR_RETURN(const Descriptor to, NewFile(name));
  absl::Status written;
  const bool whole = ReadToEnd(
      [&from](char* target, size_t bytes) {
        return read(from.get(), target, bytes);
      },
      [&](absl::string_view piece) {
        written = WriteText(to.get(), piece, path);
        return written.ok();
      });
  if (!whole) return SystemError(source.path, "read", errno);
  RETURN_IF_ERROR(written);
  return Sync(kExportText, to.get(), path);
}

absl::StatusOr<uint64_t> ExportDirectory::SizeOf(
    const std::string& name) const {
  struct stat info;
  if (fstatat(directory_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) !=
      0) {
    return SystemError(PathOf(name), "stat", errno);
  }
  return static_cast<uint64_t>(info.st_size);
}

bool ExportDirectory::IsNow(const std::string& name) const {
  struct stat there, ours;
  return fstatat(parent_.descriptor.get(), name.c_str(), &there,
                 AT_SYMLINK_NOFOLLOW) == 0 &&
         fstat(directory_.get(), &ours) == 0 && there.st_dev == ours.st_dev &&
         there.st_ino == ours.st_ino;
}

absl::Status ExportDirectory::Finish(const std::string& name) {
  if (templates_.get() >= 0) {
    RETURN_IF_ERROR(
        Sync(kExportRename, templates_.get(), PathOf(kChatTemplatesFolder)));
  }
  RETURN_IF_ERROR(Sync(kExportRename, directory_.get(), PathOf("")));
  const int folder = parent_.descriptor.get();
  if (!IsNow(name_)) return MovedAway(PathOf(""));
  KillPoint("daemon.export.before_rename");
  if (file_calls::RenameAt(kExportRename, folder, name_, name,
                           RENAME_NOREPLACE) != 0) {
    if (errno != EEXIST) return SystemError(PathOf(""), "rename", errno);
    return absl::AlreadyExistsError(
        absl::StrCat(parent_.path, "/", name, ": is there already"));
  }
  // Replaced between the look and the rename: what was renamed is not ours.
  if (!IsNow(name)) return MovedAway(PathOf(""));
  KillPoint("daemon.export.after_rename");
  finished_ = true;
  const Descriptor parent(openat(folder, ".", O_RDONLY | O_CLOEXEC));
  if (parent.get() < 0) return SystemError(parent_.path, "open", errno);
  return Sync(kExportRename, parent.get(), parent_.path);
}

void ExportDirectory::Remove() {
  // It has no other directory of its own.
  const Descriptor templates = OpenOwn(directory_.get(), kChatTemplatesFolder);
  if (templates.get() >= 0) {
    RemoveFilesIn(templates.get());
    file_calls::UnlinkAt(kExportRemove, directory_.get(), kChatTemplatesFolder,
                         AT_REMOVEDIR);
  }
  RemoveFilesIn(directory_.get());
  if (IsNow(name_)) {
    file_calls::UnlinkAt(kExportRemove, parent_.descriptor.get(), name_,
                         AT_REMOVEDIR);
  }
}

absl::Status ExportDirectory::RemoveLeftover(const FileOpener& files,
                                             const std::string& temporary) {
  const fs::path path(temporary);
  const std::string name = path.filename().string();
  if (!absl::StartsWith(name, kExportTemporaryPrefix)) return absl::OkStatus();
  auto parent = files.OpenDirectory(path.parent_path().string());
  // Gone with all that was in it, or no folder of exports any more.
  if (absl::IsUnavailable(parent.status()) ||
      absl::IsInternal(parent.status())) {
    return parent.status();
  }
  if (!parent.ok()) return absl::OkStatus();
  Descriptor directory = OpenOwn(parent->descriptor.get(), name);
  if (directory.get() < 0) return absl::OkStatus();
  ExportDirectory left(*std::move(parent), name, std::move(directory));
  left.Remove();
  left.finished_ = true;
  if (!left.IsNow(name)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(temporary, ": cannot be removed"));
}

}  // namespace roundhouse
