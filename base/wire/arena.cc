#include "base/wire/arena.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace roundhouse::wire {
namespace {

absl::Status ErrnoStatus(const char* call) {
  return absl::InternalError(absl::StrCat(call, ": ", std::strerror(errno)));
}

absl::StatusOr<std::byte*> MapShared(int fd, uint64_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) return ErrnoStatus("mmap of the arena");
  // Fewer pages for each process to map and for a GPU to pin, where the system
  // has huge ones for shared memory.
  madvise(base, bytes, MADV_HUGEPAGE);
  // A worker that aborts, as LibTorch does on a lost GPU, must not leave all of
  // the arena in a core dump before it is gone.
  madvise(base, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(base);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Arena>> Arena::Create(uint64_t size_bytes,
                                                     uint32_t worker_count) {
  constexpr uint64_t kPage = 4096;
  if (worker_count > kMaxWorkers) {
    return absl::InvalidArgumentError(
        absl::StrCat(worker_count, " workers; the limit is ", kMaxWorkers));
  }
  size_bytes = (size_bytes + kPage - 1) / kPage * kPage;
  if (size_bytes < 2 * sizeof(ArenaHeader)) size_bytes = 4 * kPage;
  const int fd = memfd_create("roundhouse-arena", MFD_CLOEXEC);
  if (fd < 0) return ErrnoStatus("memfd_create");
  // Opened through /proc by nobody but this user.
  if (fchmod(fd, 0600) != 0) {
    const absl::Status status = ErrnoStatus("fchmod of the arena");
    close(fd);
    return status;
  }
  if (ftruncate(fd, static_cast<off_t>(size_bytes)) != 0) {
    const absl::Status status = ErrnoStatus("ftruncate of the arena");
    close(fd);
    return status;
  }
  absl::StatusOr<std::byte*> base = MapShared(fd, size_bytes);
  if (!base.ok()) {
    close(fd);
    return base.status();
  }
  auto arena = std::unique_ptr<Arena>(new Arena(fd, *base, size_bytes));
  ArenaHeader& header = arena->header();
  header.magic = kArenaMagic;
  header.version = kWireVersion;
  header.worker_count = worker_count;
  header.size_bytes = size_bytes;
  return arena;
}

absl::StatusOr<std::unique_ptr<Arena>> Arena::Map(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus("fstat of the arena");
  const uint64_t size_bytes = static_cast<uint64_t>(info.st_size);
  if (size_bytes < sizeof(ArenaHeader)) {
    return absl::InvalidArgumentError(
        absl::StrCat("arena: ", size_bytes, " bytes hold no header"));
  }
  ASSIGN_OR_RETURN(std::byte * base, MapShared(fd, size_bytes));
  auto arena = std::unique_ptr<Arena>(new Arena(fd, base, size_bytes));
  const ArenaHeader& header = arena->header();
  if (header.magic != kArenaMagic || header.version != kWireVersion ||
      header.size_bytes != size_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("arena: made by another build (wire version ",
                     header.version, ", this one is ", kWireVersion, ")"));
  }
  return arena;
}

Arena::~Arena() {
  munmap(base_, size_bytes_);
  close(fd_);
}

}  // namespace roundhouse::wire
