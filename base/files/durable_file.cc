#include "base/files/durable_file.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/files/descriptor.h"
#include "base/files/file_fault.h"
#include "base/files/whole_io.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

std::string ParentOf(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const size_t slash =
      end == std::string::npos ? end : path.find_last_of('/', end);
  if (slash == std::string::npos) return path[0] == '/' ? "/" : ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status WriteAndSync(FileSite site, int fd, absl::string_view content,
                          const std::string& path) {
  const bool written =
      WriteAll(content, [site, fd](const char* from, size_t bytes) {
        return file_calls::Write(site, fd, from, bytes);
      });
  if (!written) return FileError("writing", path, errno);
  if (file_calls::Sync(site, fd) == 0) return absl::OkStatus();
  return FileError("syncing", path, errno);
}

absl::Status ReadError(const std::string& path, int error) {
  const std::string text =
      absl::StrCat("reading ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::UnavailableError(text);
    case ELOOP:
    case EACCES:
      return absl::DataLossError(text);
    default:
      return absl::InternalError(text);
  }
}

// Calls `piece` with all of the regular file that `fd` is, from where it
// stands.
absl::Status ReadPieces(
    FileSite site, int fd, const std::string& path,
    absl::FunctionRef<absl::Status(absl::string_view)> piece) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ReadError(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(path + ": is no regular file");
  }
  absl::Status taken;
  const bool read = ReadToEnd(
      [site, fd](char* target, size_t bytes) {
        return file_calls::Read(site, fd, target, bytes);
      },
      [&](absl::string_view one) {
        taken = piece(one);
        return taken.ok();
      });
  return read ? taken : ReadError(path, errno);
}

unsigned int FlagsOf(RenameMode mode) {
  switch (mode) {
    case RenameMode::kReplace:
      return 0;
    case RenameMode::kKeep:
      return RENAME_NOREPLACE;
    case RenameMode::kExchange:
      return RENAME_EXCHANGE;
  }
  return 0;
}

absl::StatusOr<Descriptor> OpenToRead(FileSite site, const std::string& path) {
  // A pipe must not hold up who asks what it is.
  Descriptor file(
      file_calls::Open(site, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0));
  if (file.get() < 0) return ReadError(path, errno);
  return file;
}

}  // namespace

absl::Status FileError(absl::string_view what, const std::string& path,
                       int error) {
  return absl::Status(
      CodeOf(error), absl::StrCat(what, " ", path, ": ", std::strerror(error)));
}

std::string TempName(const std::string& path) { return path + ".tmp"; }

absl::Status WriteNewFile(FileSite site, const std::string& path,
                          absl::string_view content) {
  const Descriptor file(file_calls::Open(
      site, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
      kFileMode));
  if (file.get() < 0) return FileError("creating", path, errno);
  return WriteAndSync(site, file.get(), content, path);
}

absl::Status WriteFileDurably(FileSite site, const std::string& path,
                              absl::string_view content) {
  const std::string temporary = TempName(path);
  absl::Status status = WriteNewFile(site, temporary, content);
  if (status.ok()) {
    status = RenameDurably(site, temporary, path, RenameMode::kReplace);
  }
  // On a full disk it would take room that others need.
  if (!status.ok()) file_calls::Discard(site, temporary);
  return status;
}

absl::Status SyncFolder(FileSite site, const std::string& path) {
  const Descriptor folder(
      open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return FileError("opening", path, errno);
  if (file_calls::Sync(site, folder.get()) == 0) return absl::OkStatus();
  return FileError("syncing", path, errno);
}

absl::Status MakeFolderDurably(FileSite site, const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return absl::OkStatus();
  }
  const std::string parent = ParentOf(path);
  if (file_calls::MakeFolder(site, path, kFolderMode) != 0) {
    if (errno != ENOENT || parent == path) {
      return FileError("creating", path, errno);
    }
    RETURN_IF_ERROR(MakeFolderDurably(site, parent));
    return MakeFolderDurably(site, path);
  }
  return SyncFolder(site, parent);
}

absl::Status RenameDurably(FileSite site, const std::string& from,
                           const std::string& to, RenameMode mode) {
  if (file_calls::Rename(site, from, to, FlagsOf(mode)) != 0) {
    if (errno == EEXIST && mode == RenameMode::kKeep) {
      return absl::AlreadyExistsError(absl::StrCat(to, ": is there already"));
    }
    return FileError("renaming", from, errno);
  }
  RETURN_IF_ERROR(SyncFolder(site, ParentOf(to)));
  if (ParentOf(from) == ParentOf(to)) return absl::OkStatus();
  return SyncFolder(site, ParentOf(from));
}

absl::StatusOr<std::string> ReadWholeFile(FileSite site,
                                          const std::string& path,
                                          uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const Descriptor file, OpenToRead(site, path));
  return ReadWholeFile(site, file.get(), path, max_bytes);
}

absl::StatusOr<std::string> ReadWholeFile(FileSite site, int fd,
                                          const std::string& path,
                                          uint64_t max_bytes) {
  std::string content;
  RETURN_IF_ERROR(
      ReadPieces(site, fd, path, [&](absl::string_view piece) -> absl::Status {
        if (content.size() + piece.size() > max_bytes) {
          return absl::InvalidArgumentError(absl::StrCat(
              path, ": has more than the ", max_bytes, " bytes allowed"));
        }
        absl::StrAppend(&content, piece);
        return absl::OkStatus();
      }));
  return content;
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  ROUNDHOUSE_CHECK(context_ != nullptr &&
                   EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_); }

void Sha256::Add(absl::string_view bytes) {
  ROUNDHOUSE_CHECK(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::Finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  ROUNDHOUSE_CHECK(EVP_DigestFinal_ex(context_, digest, &bytes) == 1);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<char*>(digest), bytes));
}

std::string Sha256Of(absl::string_view bytes) {
  Sha256 hash;
  hash.Add(bytes);
  return hash.Finish();
}

absl::StatusOr<FileHash> HashFile(FileSite site, const std::string& path,
                                  const std::atomic<bool>* stop) {
  ASSIGN_OR_RETURN(const Descriptor file, OpenToRead(site, path));
  return HashFile(site, file.get(), path, stop);
}

absl::StatusOr<FileHash> HashFile(FileSite site, int fd,
                                  const std::string& path,
                                  const std::atomic<bool>* stop) {
  Sha256 hash;
  FileHash result;
  RETURN_IF_ERROR(
      ReadPieces(site, fd, path, [&](absl::string_view piece) -> absl::Status {
        if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
          return absl::CancelledError(path + ": no longer wanted");
        }
        hash.Add(piece);
        result.bytes += piece.size();
        return absl::OkStatus();
      }));
  result.sha256 = hash.Finish();
  return result;
}

absl::Status RemoveFile(FileSite site, const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0 && errno == ENOENT) {
    return absl::OkStatus();
  }
  if (file_calls::Unlink(site, path) == 0 || errno == ENOENT) {
    return absl::OkStatus();
  }
  return FileError("removing", path, errno);
}

}  // namespace roundhouse
