#include "server/store/disk_reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/byte_text.h"
#include "base/files/descriptor.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/files/file_site.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr uint64_t kStatBlockBytes = 512;

// A file of that length may have holes: a disk that was copied, say.
bool IsWhole(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         static_cast<uint64_t>(info.st_blocks) * kStatBlockBytes >=
             kDiskReserveBytes;
}

absl::Status Allocate(const std::string& path) {
  const Descriptor file(file_calls::Open(
      kStateReserve, path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
      0600));
  if (file.get() < 0) return FileError("creating", path, errno);
  if (file_calls::Allocate(kStateReserve, file.get(), kDiskReserveBytes) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  file_calls::Discard(kStateReserve, path);
  return absl::ResourceExhaustedError(
      absl::StrCat("allocating ", ByteText(kDiskReserveBytes), " of ", path,
                   ": ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<uint64_t> FreeDiskBytes(const std::string& path) {
  struct statvfs disk;
  if (statvfs(path.c_str(), &disk) != 0) {
    return absl::InternalError(
        absl::StrCat("free disk of ", path, ": ", std::strerror(errno)));
  }
  return uint64_t{disk.f_bavail} * disk.f_frsize;
}

DiskReserve::DiskReserve(const std::string& state_dir)
    : state_dir_(state_dir),
      path_(state_dir + "/reserve"),
      held_(IsWhole(path_)) {}

absl::Status DiskReserve::Fill() {
  if (held_) return absl::OkStatus();
  ASSIGN_OR_RETURN(const uint64_t free_bytes, FreeDiskBytes(state_dir_));
  if (free_bytes < 2 * kDiskReserveBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path_, ": the job store's reserve needs ",
                     ByteText(2 * kDiskReserveBytes), " of disk, ",
                     ByteText(free_bytes), " are free"));
  }
  RETURN_IF_ERROR(Allocate(path_));
  held_ = true;
  return absl::OkStatus();
}

bool DiskReserve::GiveUp() {
  return held_.exchange(false) && file_calls::Unlink(kStateReserve, path_) == 0;
}

}  // namespace roundhouse
