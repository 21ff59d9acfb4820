// Whole files read and written in bounded pieces, with errors that name the
// path and the bytes.  Thread-compatible.
#ifndef ROUNDHOUSE_WORKER_FILES_FILE_IO_H_
#define ROUNDHOUSE_WORKER_FILES_FILE_IO_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files/checked_file.h"
#include "base/files/descriptor.h"

struct evp_md_ctx_st;

namespace roundhouse::worker {

// Read, converted and written at a time.
inline constexpr uint64_t kPieceBytes = 1 << 20;
// What a save leaves to the page cache before it waits for the disk.
inline constexpr uint64_t kSyncBytes = 64 << 20;

class InputFile {
 public:
  // Errors as OpenChecked's.
  static absl::StatusOr<std::unique_ptr<InputFile>> Open(
      const CheckedFile& file);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // All of [offset, offset + bytes).  DATA_LOSS: the file ends before that.
  absl::Status Read(uint64_t offset, void* target, uint64_t bytes) const;

 private:
  InputFile(std::string path, Descriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  const std::string path_;
  const Descriptor file_;
};

class OutputFile {
 public:
  using Sha256 = std::array<uint8_t, 32>;

  // Makes the file anew, exclusively; a regular file left there by a save that
  // was killed is removed first.  ALREADY_EXISTS: something else is there.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Create(
      const std::string& path);
  // `path` names it in errors only.
  static std::unique_ptr<OutputFile> Adopt(const std::string& path,
                                           Descriptor file);
  // Removes the file unless Finish succeeded.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  uint64_t written_bytes() const { return written_bytes_; }

  // Appends.  RESOURCE_EXHAUSTED: disk, quota or file size limit; INTERNAL:
  // other errors of the system; both name the path and the bytes written.
  absl::Status Write(const void* data, uint64_t bytes);

  // fsync, and a check that the file has exactly `file_bytes` bytes.
  absl::StatusOr<Sha256> Finish(uint64_t file_bytes);

 private:
  enum class Unfinished { kRemoved, kStays };
  OutputFile(std::string path, Descriptor file, Unfinished unfinished);
  absl::Status Failure(const char* what, int error) const;

  const std::string path_;
  Descriptor file_;
  bool remove_;
  evp_md_ctx_st* const hash_;
  uint64_t written_bytes_ = 0;
  uint64_t synced_bytes_ = 0;
};

// A file that is there already, written in ranges: what was written before
// stays, and the same range again is the same file.
class RangeFile {
 public:
  // Errors as roundhouse::OpenForWriting's.
  static absl::StatusOr<std::unique_ptr<RangeFile>> Open(
      const CheckedFile& file);
  RangeFile(const RangeFile&) = delete;
  RangeFile& operator=(const RangeFile&) = delete;

  // All of [offset, offset + bytes).  Errors as OutputFile::Write's.
  absl::Status Write(uint64_t offset, const void* data, uint64_t bytes);
  // Returns when what was written is on the disk.
  absl::Status Sync();

 private:
  RangeFile(std::string path, Descriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  const std::string path_;
  const Descriptor file_;
  uint64_t unsynced_bytes_ = 0;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_FILES_FILE_IO_H_
