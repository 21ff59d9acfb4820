#include "base/model/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace roundhouse {
namespace {

absl::Status SystemError(const std::string& path, const char* what, int error) {
  const std::string message =
      absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    case ENAMETOOLONG:
    case ELOOP:
      return absl::InvalidArgumentError(message);
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  int descriptor;
  do {
    descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) return SystemError(path, "cannot be opened", errno);
  InputFile file(descriptor, path, 0);
  struct stat info;
  if (fstat(descriptor, &info) != 0) {
    return SystemError(path, "cannot be examined", errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a regular file"));
  }
  file.size_bytes_ = static_cast<uint64_t>(info.st_size);
  return file;
}

InputFile::InputFile(int descriptor, std::string path, uint64_t size_bytes)
    : descriptor_(descriptor),
      path_(std::move(path)),
      size_bytes_(size_bytes) {}

InputFile::InputFile(InputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      size_bytes_(other.size_bytes_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status InputFile::Read(uint64_t offset, uint64_t bytes, char* to) const {
  uint64_t done = 0;
  while (done < bytes) {
    const ssize_t count = pread(descriptor_, to + done, bytes - done,
                                static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(path_, "cannot be read", errno);
    if (count == 0) {
      return absl::DataLossError(
          absl::StrCat(path_, ": ends at byte ", offset + done, ", ", bytes,
                       " bytes from byte ", offset, " were expected"));
    }
    done += static_cast<uint64_t>(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path,
                                          uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.size_bytes() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", file.size_bytes(), " bytes, at most ",
                     max_bytes, " are read"));
  }
  std::string text(file.size_bytes(), '\0');
  RETURN_IF_ERROR(file.Read(0, text.size(), text.data()));
  return text;
}

}  // namespace roundhouse
