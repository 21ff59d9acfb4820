#include "base/files/checked_file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace roundhouse {
namespace {

absl::Status SystemError(const std::string& path, const char* what, int error) {
  const bool shortage = error == EMFILE || error == ENFILE || error == ENOMEM;
  return absl::Status(
      shortage ? absl::StatusCode::kUnavailable
               : absl::ErrnoToStatusCode(error),
      absl::StrCat(path, ": ", what, ": ", std::strerror(error)));
}

absl::Status ChangedError(const CheckedFile& file) {
  return absl::FailedPreconditionError(
      absl::StrCat(file.path, ": changed since it was checked"));
}

// `path` below `root`, which it begins with.
std::string RelativeTo(const std::string& root, const std::string& path) {
  const size_t begin = path.find_first_not_of('/', root.size());
  return begin == std::string::npos ? "." : path.substr(begin);
}

// An O_PATH descriptor of the file, or -1 with errno.
int Place(const CheckedFile& file, Links links) {
  if (file.root.empty()) {
    const int last = links == Links::kNone ? O_NOFOLLOW : 0;
    return open(file.path.c_str(), O_PATH | O_CLOEXEC | last);
  }
  const int root =
      open(file.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (root < 0) return -1;
  const int place = OpenBeneath(root, RelativeTo(file.root, file.path), links);
  const int error = errno;
  close(root);
  errno = error;
  return place;
}

// What the O_PATH descriptor `place` names, or -1 with errno.
int OpenAgain(int place, int access) {
  const std::string name = absl::StrCat("/proc/self/fd/", place);
  int descriptor = 0;
  do {
    descriptor = open(name.c_str(), access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

absl::StatusOr<int> OpenIf(
    const CheckedFile& file, Links links, int access,
    const std::function<absl::Status(const FileIdentity&)>& check) {
  const int place = Place(file, links);
  if (place < 0 && (errno == EXDEV || errno == ELOOP)) {
    return ChangedError(file);
  }
  if (place < 0) return SystemError(file.path, "cannot be opened", errno);
  const auto closing = absl::MakeCleanup([place] { close(place); });
  struct stat info;
  if (fstat(place, &info) != 0) {
    return SystemError(file.path, "cannot be examined", errno);
  }
  if (!S_ISREG(info.st_mode)) return ChangedError(file);
  const absl::Status same = check(IdentityOf(info));
  if (!same.ok()) return same;
  const int descriptor = OpenAgain(place, access);
  if (descriptor >= 0) return descriptor;
  return SystemError(file.path, "cannot be opened", errno);
}

}  // namespace

FileIdentity IdentityOf(const struct stat& info) {
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .size_bytes = static_cast<uint64_t>(info.st_size),
          .mtime_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 +
                      info.st_mtim.tv_nsec};
}

bool IsSame(const FileIdentity& then, const FileIdentity& now) {
  return (then.device == 0 || then.device == now.device) &&
         then.inode == now.inode && then.size_bytes == now.size_bytes &&
         then.mtime_ns == now.mtime_ns;
}

int OpenBeneath(int folder, const std::string& relative, Links links) {
  struct open_how how = {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  if (links == Links::kNone) how.resolve |= RESOLVE_NO_SYMLINKS;
  long place = 0;
  do {  // EAGAIN: something on the way was renamed meanwhile
    place = syscall(SYS_openat2, folder, relative.c_str(), &how, sizeof(how));
  } while (place < 0 && (errno == EAGAIN || errno == EINTR));
  return static_cast<int>(place);
}

int OpenForReading(int place) { return OpenAgain(place, O_RDONLY); }

absl::Status CheckSame(const CheckedFile& then, const FileIdentity& now) {
  if (IsSame(then.identity, now)) return absl::OkStatus();
  if (then.identity.size_bytes == now.size_bytes) return ChangedError(then);
  return absl::FailedPreconditionError(
      absl::StrCat(ChangedError(then).message(), ": it has ", now.size_bytes,
                   " bytes, ", then.identity.size_bytes, " then"));
}

absl::StatusOr<int> OpenChecked(const CheckedFile& file) {
  return OpenIf(file, Links::kBeneath, O_RDONLY,
                [&](const FileIdentity& now) { return CheckSame(file, now); });
}

absl::StatusOr<int> OpenForWriting(const CheckedFile& file) {
  return OpenIf(file, Links::kNone, O_WRONLY, [&](const FileIdentity& now) {
    const bool same =
        file.identity.device == now.device && file.identity.inode == now.inode;
    return same ? absl::OkStatus() : ChangedError(file);
  });
}

}  // namespace roundhouse
