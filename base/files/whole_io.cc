#include "base/files/whole_io.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace roundhouse {

bool WriteAll(absl::string_view bytes, WriteCall write) {
  while (!bytes.empty()) {
    const ssize_t put =
        write(bytes.data(), std::min(bytes.size(), kIoPieceBytes));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

bool WriteAll(int fd, absl::string_view bytes) {
  return WriteAll(bytes, [fd](const char* from, size_t count) {
    return write(fd, from, count);
  });
}

bool ReadToEnd(ReadCall read, absl::FunctionRef<bool(absl::string_view)> take) {
  std::string buffer(kIoPieceBytes, '\0');
  while (true) {
    const ssize_t got = read(buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) return true;
    if (!take({buffer.data(), static_cast<size_t>(got)})) return true;
  }
}

std::optional<size_t> ReadAt(int fd, uint64_t offset, char* target,
                             size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = pread(fd, target + done, bytes - done,
                              static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

}  // namespace roundhouse
