#include "worker/files/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files/at_file_site.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/files/file_site.h"
#include "base/files/whole_io.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "base/status.h"
#include "openssl/evp.h"

namespace roundhouse::worker {
namespace {

absl::Status SystemError(const std::string& path, const char* what, int error) {
  const std::string text =
      absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  return absl::Status(absl::ErrnoToStatusCode(error), text);
}

// A disk that fails is no mistake of the file.
absl::Status ReadError(const std::string& path, int error) {
  return absl::Status(FileError("read", path, error).code(),
                      absl::StrCat(path, ": read: ", std::strerror(error)));
}

// The error of a write: a full disk, a quota or a limit is told apart from the
// rest.
absl::Status WriteError(const std::string& path, const char* what,
                        uint64_t bytes, int error) {
  return absl::Status(FileError(what, path, error).code(),
                      absl::StrCat(path, ": ", what, " after ", bytes,
                                   " bytes: ", std::strerror(error)));
}

absl::Status RemoveLeftover(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISREG(info.st_mode)) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, ": is there and is no regular file"));
  }
  if (file_calls::Unlink(kShardRemove, path) != 0 && errno != ENOENT) {
    return SystemError(path, "remove", errno);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<InputFile>> InputFile::Open(
    const CheckedFile& file) {
  ASSIGN_OR_RETURN(Descriptor opened, OpenChecked(file));
  return std::unique_ptr<InputFile>(
      new InputFile(file.path, std::move(opened)));
}

absl::Status InputFile::Read(uint64_t offset, void* target,
                             uint64_t bytes) const {
  const std::optional<size_t> got =
      ReadAt(file_.get(), offset, static_cast<char*>(target), bytes);
  if (!got.has_value()) return ReadError(path_, errno);
  if (*got == bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path_, ": ended at byte ",
                                          offset + *got, " with ", bytes - *got,
                                          " more expected"));
}

OutputFile::OutputFile(std::string path, Descriptor file, Unfinished unfinished)
    : path_(std::move(path)),
      file_(std::move(file)),
      remove_(unfinished == Unfinished::kRemoved),
      hash_(EVP_MD_CTX_new()) {
  ROUNDHOUSE_CHECK(hash_ != nullptr &&
                   EVP_DigestInit_ex(hash_, EVP_sha256(), nullptr) == 1);
}

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Create(
    const std::string& path) {
  RETURN_IF_ERROR(RemoveLeftover(path));
  Descriptor file(file_calls::Open(
      kShardWrite, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
      kFileMode));
  if (file.get() < 0 && errno == ENOENT) {
    return SystemError(path, "create", errno);
  }
  if (file.get() < 0) return WriteError(path, "create", 0, errno);
  return std::unique_ptr<OutputFile>(
      new OutputFile(path, std::move(file), Unfinished::kRemoved));
}

std::unique_ptr<OutputFile> OutputFile::Adopt(const std::string& path,
                                              Descriptor file) {
  return std::unique_ptr<OutputFile>(
      new OutputFile(path, std::move(file), Unfinished::kStays));
}

OutputFile::~OutputFile() {
  EVP_MD_CTX_free(hash_);
  file_ = Descriptor();
  if (remove_) file_calls::Discard(kShardWrite, path_);
}

absl::Status OutputFile::Failure(const char* what, int error) const {
  return WriteError(path_, what, written_bytes_, error);
}

absl::Status OutputFile::Write(const void* data, uint64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = file_calls::Write(kShardWrite, file_.get(), from,
                                          std::min(bytes, kPieceBytes));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Failure("write", errno);
    ROUNDHOUSE_CHECK(EVP_DigestUpdate(hash_, from, put) == 1);
    from += put;
    bytes -= static_cast<uint64_t>(put);
    written_bytes_ += static_cast<uint64_t>(put);
    if (written_bytes_ - synced_bytes_ >= kSyncBytes) {
      if (file_calls::SyncData(kShardSync, file_.get()) != 0) {
        return Failure("sync", errno);
      }
      synced_bytes_ = written_bytes_;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<OutputFile::Sha256> OutputFile::Finish(uint64_t file_bytes) {
  KillPoint("files.save.before_fsync");
  if (file_calls::Sync(kShardSync, file_.get()) != 0)
    return Failure("fsync", errno);
  KillPoint("files.save.after_fsync");
  struct stat info;
  if (fstat(file_.get(), &info) != 0) return Failure("stat", errno);
  if (written_bytes_ != file_bytes ||
      static_cast<uint64_t>(info.st_size) != file_bytes) {
    return absl::InternalError(absl::StrCat(
        path_, ": ", written_bytes_, " bytes written, the file has ",
        info.st_size, ", ", file_bytes, " expected"));
  }
  Sha256 sum;
  ROUNDHOUSE_CHECK(EVP_DigestFinal_ex(hash_, sum.data(), nullptr) == 1);
  remove_ = false;
  return sum;
}

absl::StatusOr<std::unique_ptr<RangeFile>> RangeFile::Open(
    const CheckedFile& file) {
  const AtFileSite at(kMergeWrite);
  ASSIGN_OR_RETURN(Descriptor opened, OpenForWriting(file));
  return std::unique_ptr<RangeFile>(
      new RangeFile(file.path, std::move(opened)));
}

absl::Status RangeFile::Write(uint64_t offset, const void* data,
                              uint64_t bytes) {
  const bool written = WriteAll({static_cast<const char*>(data), bytes},
                                [&](const char* from, size_t count) {
                                  const ssize_t put = file_calls::WriteAt(
                                      kMergeWrite, file_.get(), from, count,
                                      static_cast<int64_t>(offset));
                                  if (put <= 0) return put;
                                  offset += static_cast<uint64_t>(put);
                                  unsynced_bytes_ += static_cast<uint64_t>(put);
                                  return put;
                                });
  if (!written) return WriteError(path_, "write", offset, errno);
  return unsynced_bytes_ < kSyncBytes ? absl::OkStatus() : Sync();
}

absl::Status RangeFile::Sync() {
  if (file_calls::SyncData(kMergeSync, file_.get()) != 0) {
    return WriteError(path_, "sync", unsynced_bytes_, errno);
  }
  unsynced_bytes_ = 0;
  return absl::OkStatus();
}

}  // namespace roundhouse::worker
