#include "client/transfer/arriving_files.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/files/descriptor.h"
#include "base/files/durable_file.h"
#include "base/files/whole_io.h"
#include "base/status.h"
#include "base/upload_names.h"
#include "client/files.h"
#include "client/transfer/own_folder.h"

namespace roundhouse::client {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxKeyBytes = 8 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<ArrivingFiles>> ArrivingFiles::Open(
    const std::string& folder, const std::string& key,
    std::vector<ArrivingFile> files) {
  std::unique_ptr<ArrivingFiles> arriving(
      new ArrivingFiles(folder, std::move(files)));
  RETURN_IF_ERROR(arriving->Prepare(key));
  return arriving;
}

std::string ArrivingFiles::PathOf(size_t file) const {
  return absl::StrCat(folder_, "/", files_[file].name);
}

absl::Status ArrivingFiles::Prepare(const std::string& key) {
  const std::string key_path = absl::StrCat(folder_, "/", kFolderKeyName);
  std::error_code error;
  const auto then = ReadSmallFile(key_path, kMaxKeyBytes);
  if (!then.ok() || *then != key) {
    RETURN_IF_ERROR(RemoveOwnFolder(folder_));
    fs::create_directories(folder_, error);
    if (error) return DiskError(folder_, error.value());
    RETURN_IF_ERROR(WriteTextFile(key_path, key));
  }
  MutexLock lock(mutex_);
  parts_.resize(files_.size());
  for (size_t i = 0; i < files_.size(); ++i) {
    const fs::path path = PathOf(i);
    fs::create_directories(path.parent_path(), error);
    if (error) return DiskError(path.string(), error.value());
    const uint64_t size = fs::file_size(path, error);
    if (error || size > files_[i].bytes) continue;
    const bool one_chunk = files_[i].bytes <= kUploadChunkBytes;
    parts_[i].there = one_chunk && size == files_[i].bytes
                          ? size
                          : size - std::min(size, kUploadAheadBytes);
  }
  return absl::OkStatus();
}

std::vector<uint64_t> ArrivingFiles::there() const {
  MutexLock lock(mutex_);
  std::vector<uint64_t> there;
  for (const Part& part : parts_) there.push_back(part.there);
  return there;
}

absl::StatusOr<uint64_t> ArrivingFiles::Put(size_t file, uint64_t offset,
                                            absl::string_view data) {
  const std::string path = PathOf(file);
  const Descriptor opened(
      open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (opened.get() < 0) return DiskError(path, errno);
  uint64_t at = offset;
  const bool written = WriteAll(data, [&](const char* from, size_t bytes) {
    const ssize_t done =
        pwrite(opened.get(), from, bytes, static_cast<off_t>(at));
    if (done > 0) at += static_cast<uint64_t>(done);
    return done;
  });
  if (!written) return DiskError(path, errno);
  MutexLock lock(mutex_);
  Part& part = parts_[file];
  part.ahead.emplace(offset, at);
  while (!part.ahead.empty() && part.ahead.begin()->first <= part.there) {
    part.there = std::max(part.there, part.ahead.begin()->second);
    part.ahead.erase(part.ahead.begin());
  }
  return part.there;
}

absl::StatusOr<std::string> ArrivingFiles::Hash(size_t file) const {
  const std::string path = PathOf(file);
  // An empty one has had no chunk.
  const Descriptor opened(
      open(path.c_str(), O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (opened.get() < 0) return DiskError(path, errno);
  Sha256 hash;
  std::string piece(kIoPieceBytes, '\0');
  for (uint64_t at = 0;;) {
    const auto got = ReadAt(opened.get(), at, piece.data(), piece.size());
    if (!got.has_value()) return DiskError(path, errno);
    if (*got == 0) return hash.Finish();
    hash.Add(absl::string_view(piece.data(), *got));
    at += *got;
  }
}

absl::Status ArrivingFiles::Drop(size_t file) {
  std::error_code error;
  fs::remove(PathOf(file), error);
  if (error) return DiskError(PathOf(file), error.value());
  MutexLock lock(mutex_);
  parts_[file] = Part();
  return absl::OkStatus();
}

absl::Status ArrivingFiles::Publish(const std::string& directory,
                                    WhatIsThere what) {
  for (size_t i = 0; i < files_.size(); ++i) {
    RETURN_IF_ERROR(SyncPath(PathOf(i)));
  }
  RETURN_IF_ERROR(SyncPath(folder_));
  return PublishFolder(folder_, directory, what);
}

}  // namespace roundhouse::client
