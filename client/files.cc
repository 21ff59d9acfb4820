#include "client/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

absl::StatusOr<std::string> ReadAll(int fd, const std::string& path,
                                    size_t limit_bytes) {
  std::string text;
  char buffer[16 * 1024];
  for (;;) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": cannot be read: ", std::strerror(errno)));
    }
    if (count == 0) {
      return text;
    }
    text.append(buffer, count);
    if (text.size() > limit_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": longer than the limit of ", limit_bytes, " bytes (",
          FormatBytes(static_cast<int64_t>(limit_bytes)), ")"));
    }
  }
}

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path,
                                          size_t limit_bytes) {
  if (path == "-") {
    return ReadAll(STDIN_FILENO, "standard input", limit_bytes);
  }
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const std::string message =
        absl::StrCat(path, ": cannot be opened: ", std::strerror(errno));
    return errno == ENOENT || errno == ENOTDIR
               ? absl::NotFoundError(message)
               : absl::InvalidArgumentError(message);
  }
  absl::StatusOr<std::string> text = ReadAll(fd, path, limit_bytes);
  close(fd);
  return text;
}

absl::Status WriteTextFile(const std::string& path, const std::string& text) {
  const auto failed = [&path] {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot be written: ", std::strerror(errno)));
  };
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return failed();
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const absl::Status status = failed();
      close(fd);
      return status;
    }
    done += static_cast<size_t>(count);
  }
  return close(fd) == 0 ? absl::OkStatus() : failed();
}

}  // namespace roundhouse::client
