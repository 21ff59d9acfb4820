#include "tests/sim/sim_disk.h"

#include <dlfcn.h>
#include <sys/statvfs.h>

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/files/file_fault.h"
#include "base/log.h"

namespace roundhouse::sim {
namespace {

// Where the daemon and the dataset helper write for jobs, and what the store
// has beside its files.
constexpr FileSite kSites[] = {
    kCheckpointFolder, kCheckpointText, kCheckpointManifest, kCheckpointRename,
    kOutputFolder,     kOutputText,     kOutputRename,       kJobFolder,
    kJobLog,           kJobLines,       kFinishMark,         kJobMetrics,
    kJobSamples,       kJobTokenizer,   kStateReserve,       kPreparedArray};

std::atomic<bool> no_block_is_free = false;

}  // namespace

void SimDisk::Set(DiskState state, const std::function<bool(FileSite)>& fails) {
  state_ = state;
  no_block_is_free = state == DiskState::kFull;
  std::string faults;
  for (const FileSite& site : kSites) {
    if (!full() || !fails(site)) continue;
    absl::StrAppend(
        &faults, site.name,
        state == DiskState::kFull ? ":ENOSPC:ever;" : ":EDQUOT:ever;");
  }
  const absl::Status armed = ArmFileFaults(faults);
  ROUNDHOUSE_CHECK(armed.ok()) << armed;
}

}  // namespace roundhouse::sim

// In place of the C library's: what FreeDiskBytes asks.
extern "C" int statvfs(const char* path, struct statvfs* disk) noexcept {
  static auto* const next =
      reinterpret_cast<decltype(&statvfs)>(dlsym(RTLD_NEXT, "statvfs"));
  const int result = next(path, disk);
  if (roundhouse::sim::no_block_is_free) disk->f_bavail = 0;
  return result;
}
