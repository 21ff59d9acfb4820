// Reading a model directory's files: regular files only, whole ranges only.
#ifndef ROUNDHOUSE_BASE_MODEL_INPUT_FILE_H_
#define ROUNDHOUSE_BASE_MODEL_INPUT_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roundhouse {

// An open file.  Move-only, thread-compatible.
class InputFile {
 public:
  // NOT_FOUND where there is none, INVALID_ARGUMENT where it is no regular
  // file, PERMISSION_DENIED, or UNAVAILABLE for anything else; names the path.
  static absl::StatusOr<InputFile> Open(const std::string& path);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  uint64_t size_bytes() const { return size_bytes_; }  // when it was opened

  // Reads exactly `bytes` bytes from `offset`.  DATA_LOSS where the file ended
  // before, UNAVAILABLE for a failing disk.
  absl::Status Read(uint64_t offset, uint64_t bytes, char* to) const;

 private:
  InputFile(int descriptor, std::string path, uint64_t size_bytes);

  int descriptor_;
  std::string path_;
  uint64_t size_bytes_;
};

// INVALID_ARGUMENT where the file is larger than `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path,
                                          uint64_t max_bytes);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_INPUT_FILE_H_
