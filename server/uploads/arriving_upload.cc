#include "server/uploads/arriving_upload.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files/descriptor.h"
#include "base/files/file_fault.h"
#include "base/files/file_site.h"
#include "base/files/whole_io.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr mode_t kPrivateFile = 0600;
// A file's sync takes about as long as reading so much.
constexpr uint64_t kVerifyFileBytes = uint64_t{1} << 20;

absl::Status Over() {
  return absl::FailedPreconditionError("this upload is over");
}

absl::Time ModifiedAt(const struct stat& info) {
  return absl::TimeFromTimespec(info.st_mtim);
}

}  // namespace

ArrivingUpload::ArrivingUpload(const UploadFolders& folders,
                               const UploadRecord& record)
    : folders_(folders), id_(record.id) {
  MutexLock lock(mutex_);
  files_ = *record.files;
  parts_.resize(files_.size());
  {
    MutexLock seen(seen_mutex_);
    seen_.received.resize(files_.size());
    seen_.missing_bytes = record.total_bytes();
    seen_.last_time = record.create_time;
  }
  for (size_t i = 0; i < parts_.size(); ++i) Restore(i);
}

void ArrivingUpload::SetReceived(size_t index, uint64_t received) {
  parts_[index].received = received;
  MutexLock lock(seen_mutex_);
  seen_.missing_bytes += seen_.received[index];
  seen_.missing_bytes -= received;
  seen_.received[index] = received;
}

void ArrivingUpload::Came(absl::Time when) {
  MutexLock lock(seen_mutex_);
  seen_.last_time = std::max(seen_.last_time, when);
}

void ArrivingUpload::Restore(size_t index) {
  struct stat info;
  if (lstat(folders_.Part(id_, index).c_str(), &info) != 0) return;
  const uint64_t bytes = files_[index].bytes;
  Came(ModifiedAt(info));
  // A power cut may have left holes, which no hash would tell of.
  if (files_[index].sha256.empty()) return Reset(index);
  const auto there = static_cast<uint64_t>(info.st_size);
  if (there > bytes || !S_ISREG(info.st_mode)) return Reset(index);
  const bool shared = info.st_nlink > 1;
  const bool one_chunk = bytes <= kUploadChunkBytes;
  if (there == bytes && (shared || one_chunk)) {
    SetReceived(index, bytes);
  } else if (shared) {
    Reset(index);
  } else {
    SetReceived(index, there - std::min(there, kUploadAheadBytes));
  }
}

absl::Status ArrivingUpload::TakeLink(size_t index, const std::string& from) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(folders_.LinkPart(from, id_, index));
  SetReceived(index, files_[index].bytes);
  return absl::OkStatus();
}

absl::Status ArrivingUpload::CheckPlace(size_t index, uint64_t offset,
                                        size_t bytes) const {
  if (closed_) return Over();
  if (index >= files_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("file: ", index, " of ", files_.size(), " files, from 0"));
  }
  const UploadedFile& file = files_[index];
  if (bytes == 0 || bytes > kUploadChunkBytes || offset > file.bytes ||
      bytes > file.bytes - offset) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data: ", bytes, " bytes at ", offset, " of ", file.name,
        ", which has ", file.bytes, "; a chunk has 1 to ", kUploadChunkBytes));
  }
  const uint64_t received = parts_[index].received;
  if (offset <= received || offset + bytes - received <= kUploadAheadBytes) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(
      absl::StrCat("offset: ", offset, " of ", file.name,
                   " is too far ahead; go on at ", received));
}

absl::Status ArrivingUpload::Write(size_t index, uint64_t offset,
                                   absl::string_view data) {
  const std::string path = folders_.Part(id_, index);
  const Descriptor file(file_calls::Open(
      kUploadPart, path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
      kPrivateFile));
  if (file.get() < 0) return FileError("opening", path, errno);
  const uint64_t begun = offset / kUploadFlushBytes;
  const bool written = WriteAll(data, [&](const char* from, size_t bytes) {
    const ssize_t done = file_calls::WriteAt(
        kUploadPart, file.get(), from, bytes, static_cast<int64_t>(offset));
    if (done > 0) offset += static_cast<uint64_t>(done);
    return done;
  });
  if (!written) return FileError("writing", path, errno);
  // A hint: an error of the disk shows when the whole is synced.
  if (offset / kUploadFlushBytes != begun) {
    sync_file_range(file.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  }
  return absl::OkStatus();
}

void ArrivingUpload::HashNew(Part& part, uint64_t offset,
                             absl::string_view data) {
  if (offset == 0 && part.hash == nullptr && open_hashes_ < kMaxOpenHashes) {
    part.hash = std::make_unique<Sha256>();
    ++open_hashes_;
  }
  if (part.hash == nullptr || part.hashed != offset) return;
  part.hash->Add(data);
  part.hashed += data.size();
}

absl::StatusOr<uint64_t> ArrivingUpload::PutChunk(size_t index, uint64_t offset,
                                                  absl::string_view data) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckPlace(index, offset, data.size()));
  Part& part = parts_[index];
  Came(WallTime());
  // What was taken already is not looked at again.
  uint64_t end = offset + data.size();
  if (end <= part.received) return part.received;
  uint64_t begin = std::max(offset, part.received);
  auto next = part.ahead.upper_bound(begin);
  if (next != part.ahead.begin() && std::prev(next)->second > begin) {
    return part.received;
  }
  if (next != part.ahead.end()) end = std::min(end, next->first);
  const absl::string_view fresh = data.substr(begin - offset, end - begin);
  RETURN_IF_ERROR(Write(index, begin, fresh));
  if (begin != part.received) {
    part.ahead.emplace(begin, end);
    return part.received;
  }
  HashNew(part, begin, fresh);
  while (!part.ahead.empty() && part.ahead.begin()->first == end) {
    end = part.ahead.begin()->second;
    part.ahead.erase(part.ahead.begin());
  }
  SetReceived(index, end);
  uint64_t budget = part.received - part.hashed;
  if (part.hash != nullptr && budget <= kUploadAheadBytes) {
    RETURN_IF_ERROR(HashMore(index, budget));
  }
  return part.received;
}

absl::Status ArrivingUpload::HashMore(size_t index, uint64_t& budget) {
  Part& part = parts_[index];
  if (part.hashed == part.received || budget == 0) return absl::OkStatus();
  const std::string path = folders_.Part(id_, index);
  const Descriptor file(file_calls::Open(kUploadVerify, path,
                                         O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0));
  if (file.get() < 0) return FileError("opening", path, errno);
  if (lseek(file.get(), static_cast<off_t>(part.hashed), SEEK_SET) < 0) {
    return FileError("reading", path, errno);
  }
  std::string piece(kIoPieceBytes, '\0');
  while (budget > 0 && part.hashed < part.received) {
    if (closed_) return Over();
    const uint64_t wanted =
        std::min<uint64_t>({piece.size(), budget, part.received - part.hashed});
    const ssize_t got =
        file_calls::Read(kUploadVerify, file.get(), piece.data(), wanted);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("reading", path, errno);
    if (got == 0) {
      Reset(index);
      return absl::FailedPreconditionError(absl::StrCat(
          files_[index].name, ": its end is gone; upload it again"));
    }
    part.hash->Add(absl::string_view(piece.data(), static_cast<size_t>(got)));
    part.hashed += static_cast<uint64_t>(got);
    budget -= static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

void ArrivingUpload::DropHash(Part& part) {
  if (part.hash != nullptr) --open_hashes_;
  part.hash.reset();
  part.hashed = 0;
}

void ArrivingUpload::Reset(size_t index) {
  DropHash(parts_[index]);
  SetReceived(index, 0);
  parts_[index] = Part();
  file_calls::Discard(kUploadPart, folders_.Part(id_, index));
}

absl::Status ArrivingUpload::Settle(size_t index) {
  Part& part = parts_[index];
  UploadedFile& file = files_[index];
  const std::string sha256 = part.hash->Finish();
  DropHash(part);
  if (!file.sha256.empty() && file.sha256 != sha256) {
    Reset(index);
    return absl::FailedPreconditionError(
        absl::StrCat(file.name, ": what came has the SHA-256 ", sha256,
                     ", not the one that was given; upload it again"));
  }
  const std::string path = folders_.Part(id_, index);
  const Descriptor opened(file_calls::Open(
      kUploadPart, path, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
      kPrivateFile));
  if (opened.get() < 0) return FileError("opening", path, errno);
  if (file_calls::Sync(kUploadPart, opened.get()) != 0) {
    return FileError("syncing", path, errno);
  }
  file.sha256 = sha256;
  part.verified = true;
  MutexLock lock(seen_mutex_);
  seen_.verified_bytes += file.bytes;
  return absl::OkStatus();
}

absl::StatusOr<bool> ArrivingUpload::Verify() {
  MutexLock lock(mutex_);
  if (closed_) return Over();
  uint64_t budget = kVerifySliceBytes;
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    if (part.verified) continue;
    if (budget == 0) return false;
    if (part.received < files_[i].bytes) {
      return absl::FailedPreconditionError(
          absl::StrCat(files_[i].name, ": ", part.received, " of ",
                       files_[i].bytes, " bytes are there; upload the rest"));
    }
    if (part.hash == nullptr) {
      part.hash = std::make_unique<Sha256>();
      ++open_hashes_;
    }
    RETURN_IF_ERROR(HashMore(i, budget));
    if (part.hashed < part.received) return false;
    RETURN_IF_ERROR(Settle(i));
    budget -= std::min(budget, kVerifyFileBytes);
  }
  return true;
}

std::vector<uint64_t> ArrivingUpload::Received() const {
  MutexLock lock(seen_mutex_);
  return seen_.received;
}

uint64_t ArrivingUpload::MissingBytes() const {
  MutexLock lock(seen_mutex_);
  return seen_.missing_bytes;
}

absl::Time ArrivingUpload::last_time() const {
  MutexLock lock(seen_mutex_);
  return seen_.last_time;
}

uint64_t ArrivingUpload::verified_bytes() const {
  MutexLock lock(seen_mutex_);
  return seen_.verified_bytes;
}

UploadedFiles ArrivingUpload::VerifiedFiles() const {
  MutexLock lock(mutex_);
  return files_;
}

void ArrivingUpload::Close() {
  closed_ = true;
  MutexLock lock(mutex_);  // what writes now is done
}

}  // namespace roundhouse
