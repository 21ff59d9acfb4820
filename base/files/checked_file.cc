#include "base/files/checked_file.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/files/descriptor.h"
#include "base/files/open_limit.h"

namespace roundhouse {
namespace {

absl::Status SystemError(const std::string& path, const char* what, int error) {
  const bool shortage = error == EMFILE || error == ENFILE || error == ENOMEM ||
                        error == kOpenHangs;
  return absl::Status(
      shortage ? absl::StatusCode::kUnavailable
               : absl::ErrnoToStatusCode(error),
      absl::StrCat(path, ": ", what, ": ", OpenErrorText(error)));
}

absl::Status ChangedError(const CheckedFile& file) {
  return absl::FailedPreconditionError(
      absl::StrCat(file.path, ": changed since it was checked"));
}

std::string LinkOf(int descriptor) {
  return absl::StrCat("/proc/self/fd/", descriptor);
}

// As the kernel knows it; no file system is asked.
std::string NameOf(int descriptor) {
  char name[PATH_MAX];
  const ssize_t bytes =
      readlink(LinkOf(descriptor).c_str(), name, sizeof(name));
  return std::string(name, bytes < 0 ? 0 : static_cast<size_t>(bytes));
}

// `path` below `root`, which it begins with.
std::string RelativeTo(const std::string& root, const std::string& path) {
  const size_t begin = path.find_first_not_of('/', root.size());
  return begin == std::string::npos ? "." : path.substr(begin);
}

// OpenBeneath, however long it takes.
int LookUpBeneath(int folder, const std::string& relative, Links links) {
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

// An O_PATH descriptor of the file, or -1 with errno.
int Place(const CheckedFile& file, Links links) {
  if (file.root.empty()) {
    const int last = links == Links::kNone ? O_NOFOLLOW : 0;
    return open(file.path.c_str(), O_PATH | O_CLOEXEC | last);
  }
  const Descriptor root(
      open(file.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (root.get() < 0) return -1;
  return LookUpBeneath(root.get(), RelativeTo(file.root, file.path), links);
}

// Calls `open` with a copy of the descriptor, which it has for as long as it
// takes; -1 with errno.  `path` names what is opened.
int OpenWithCopy(int descriptor, const std::string& path,
                 const std::function<int(int)>& open) {
  if (!OpensAreLimited()) return open(descriptor);
  const int copied = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (copied < 0) return -1;
  const auto copy = std::make_shared<Descriptor>(copied);
  return OpenWithinLimit(path, [copy, open] { return open(copy->get()); });
}

// What the O_PATH descriptor `place` names, or -1 with errno.
int OpenAgain(int place, const std::string& path, int access) {
  return OpenWithCopy(place, path, [access](int copy) {
    const std::string name = LinkOf(copy);
    int descriptor = 0;
    do {
      descriptor =
          open(name.c_str(), access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    } while (descriptor < 0 && errno == EINTR);
    return descriptor;
  });
}

absl::StatusOr<Descriptor> OpenIf(
    const CheckedFile& file, Links links, int access,
    const std::function<absl::Status(const FileIdentity&)>& check) {
  const Descriptor place(
      OpenWithinLimit(file.path, [file, links] { return Place(file, links); }));
  if (place.get() < 0 && (errno == EXDEV || errno == ELOOP)) {
    return ChangedError(file);
  }
  if (place.get() < 0) {
    return SystemError(file.path, "cannot be opened", errno);
  }
  struct stat info;
  if (fstat(place.get(), &info) != 0) {
    return SystemError(file.path, "cannot be examined", errno);
  }
  if (!S_ISREG(info.st_mode)) return ChangedError(file);
  const absl::Status same = check(IdentityOf(info));
  if (!same.ok()) return same;
  Descriptor descriptor(OpenAgain(place.get(), file.path, access));
  if (descriptor.get() >= 0) return descriptor;
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

Descriptor OpenBeneath(int folder, const std::string& relative, Links links) {
  return Descriptor(OpenWithCopy(folder,
                                 absl::StrCat(NameOf(folder), "/", relative),
                                 [relative, links](int copy) {
                                   return LookUpBeneath(copy, relative, links);
                                 }));
}

Descriptor OpenForReading(int place) {
  return Descriptor(OpenAgain(place, NameOf(place), O_RDONLY));
}

Descriptor OpenFolderForReading(int folder) {
  return Descriptor(OpenWithCopy(folder, NameOf(folder), [](int copy) {
    return openat(copy, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }));
}

absl::Status CheckSame(const CheckedFile& then, const FileIdentity& now) {
  if (IsSame(then.identity, now)) return absl::OkStatus();
  if (then.identity.size_bytes == now.size_bytes) return ChangedError(then);
  return absl::FailedPreconditionError(
      absl::StrCat(ChangedError(then).message(), ": it has ", now.size_bytes,
                   " bytes, ", then.identity.size_bytes, " then"));
}

absl::StatusOr<Descriptor> OpenChecked(const CheckedFile& file) {
  return OpenIf(file, Links::kBeneath, O_RDONLY,
                [&](const FileIdentity& now) { return CheckSame(file, now); });
}

absl::StatusOr<Descriptor> OpenForWriting(const CheckedFile& file) {
  return OpenIf(file, Links::kNone, O_WRONLY, [&](const FileIdentity& now) {
    const bool same =
        file.identity.device == now.device && file.identity.inode == now.inode;
    return same ? absl::OkStatus() : ChangedError(file);
  });
}

}  // namespace roundhouse
