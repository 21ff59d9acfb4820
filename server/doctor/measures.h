// What the doctor's checks are given, and how the system is asked for it.
//
// The functions block for a moment and may be called from any thread.
#ifndef ROUNDHOUSE_SERVER_DOCTOR_MEASURES_H_
#define ROUNDHOUSE_SERVER_DOCTOR_MEASURES_H_

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace roundhouse {

enum class DeviceKind { kNone, kCpu, kGpu };

struct MemoryMeasure {
  uint64_t total_bytes = 0;  // 0: not known
  uint64_t swap_total_bytes = 0;
  uint64_t swap_free_bytes = 0;
};
// The text of /proc/meminfo; lines that are missing or no numbers count as 0.
MemoryMeasure ParseMemory(const std::string& meminfo);

struct ClockMeasure {
  bool synchronized = false;
  std::string error;  // why the kernel does not say; "": it does
};
ClockMeasure MeasureClock();

struct PathMeasure {
  enum class Kind { kMissing, kDirectory, kOther, kHangs, kRefused };
  Kind kind = Kind::kMissing;
  std::string error;  // of kMissing, kRefused and kHangs
  mode_t mode = 0;    // permissions only
  bool readable = false;
  bool writable = false;
  // 0: not known
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};
// Gives up where the kernel does not answer (base/files/open_limit.h).
PathMeasure MeasurePath(const std::string& path);

// The soft limit; without a value there is none.
std::optional<uint64_t> SoftLimit(int resource);
std::optional<uint64_t> HardLimit(int resource);
// Whether threads may have real-time priority: root, CAP_SYS_NICE, or a limit.
bool MayBeRealtime();

// The whole of a small file of /proc or /sys, "" where it can't be read.
std::string ReadSystemFile(const std::string& path);
std::string KernelRelease();

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOCTOR_MEASURES_H_
