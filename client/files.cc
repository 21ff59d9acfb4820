#include "client/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/files/descriptor.h"
#include "base/files/whole_io.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

absl::StatusOr<std::string> ReadAll(int fd, const std::string& path,
                                    size_t limit_bytes) {
  std::string text;
  const bool read_all = ReadToEnd(
      [fd](char* target, size_t bytes) { return read(fd, target, bytes); },
      [&](absl::string_view piece) {
        absl::StrAppend(&text, piece);
        return text.size() <= limit_bytes;
      });
  if (!read_all) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot be read: ", std::strerror(errno)));
  }
  if (text.size() <= limit_bytes) return text;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": longer than the limit of ", limit_bytes, " bytes (",
                   FormatBytes(static_cast<int64_t>(limit_bytes)), ")"));
}

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path,
                                          size_t limit_bytes) {
  if (path == "-") {
    return ReadAll(STDIN_FILENO, "standard input", limit_bytes);
  }
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    const std::string message =
        absl::StrCat(path, ": cannot be opened: ", std::strerror(errno));
    return errno == ENOENT || errno == ENOTDIR
               ? absl::NotFoundError(message)
               : absl::InvalidArgumentError(message);
  }
  return ReadAll(file.get(), path, limit_bytes);
}

absl::Status WriteTextFile(const std::string& path, const std::string& text) {
  const auto failed = [&path] {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot be written: ", std::strerror(errno)));
  };
  Descriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0 || !WriteAll(file.get(), text)) return failed();
  // Some file systems say only now that it was too much.
  return close(file.Release()) == 0 ? absl::OkStatus() : failed();
}

absl::Status WritePrivateFile(const std::string& path,
                              const std::string& text) {
  namespace fs = std::filesystem;
  const std::string fresh = absl::StrCat(path, ".new.", getpid());
  const auto failed = [&] {
    const int error = errno;
    unlink(fresh.c_str());
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot be written: ", std::strerror(error)));
  };
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  fs::create_directories(folder.parent_path(), error);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return failed();
  Descriptor file(open(fresh.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                       0600));
  if (file.get() < 0 || !WriteAll(file.get(), text) || fsync(file.get()) != 0 ||
      close(file.Release()) != 0 || rename(fresh.c_str(), path.c_str()) != 0) {
    return failed();
  }
  return absl::OkStatus();
}

}  // namespace roundhouse::client
