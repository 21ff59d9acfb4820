#include "server/doctor/measures.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/files/descriptor.h"
#include "base/files/open_limit.h"
#include "base/files/whole_io.h"

namespace roundhouse {
namespace {

constexpr size_t kMostSystemFileBytes = 64 << 10;
constexpr int kOurRealtimePriority = 2;  // server/workers/dispatch_priority.h

// A line "MemTotal:       16384 kB" of it.
uint64_t KilobytesOf(const std::string& meminfo, const std::string& key) {
  for (absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    if (!absl::ConsumePrefix(&line, key + ":")) continue;
    absl::ConsumeSuffix(&line, "kB");
    uint64_t kilobytes = 0;
    return absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &kilobytes)
               ? kilobytes * 1024
               : 0;
  }
  return 0;
}

std::optional<uint64_t> LimitOf(rlim_t limit) {
  return limit == RLIM_INFINITY ? std::nullopt : std::optional<uint64_t>(limit);
}

struct rlimit Limits(int resource) {
  struct rlimit limits = {};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limits) != 0) {
    return {0, 0};
  }
  return limits;
}

bool HasCapability(int capability) {
  const std::string status = ReadSystemFile("/proc/self/status");
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    uint64_t bits = 0;
    if (absl::ConsumePrefix(&line, "CapEff:") &&
        absl::SimpleHexAtoi(absl::StripAsciiWhitespace(line), &bits)) {
      return ((bits >> capability) & 1) != 0;
    }
  }
  return false;
}

PathMeasure LookAt(const std::string& path) {
  PathMeasure found;
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    found.kind = errno == ENOENT ? PathMeasure::Kind::kMissing
                                 : PathMeasure::Kind::kRefused;
    found.error = std::strerror(errno);
    return found;
  }
  found.kind = S_ISDIR(info.st_mode) ? PathMeasure::Kind::kDirectory
                                     : PathMeasure::Kind::kOther;
  found.mode = info.st_mode & 07777;
  found.readable = access(path.c_str(), R_OK | X_OK) == 0;
  found.writable = access(path.c_str(), W_OK | X_OK) == 0;
  struct statvfs disk;
  if (statvfs(path.c_str(), &disk) == 0) {
    found.free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
    found.total_bytes = uint64_t{disk.f_blocks} * disk.f_frsize;
  }
  return found;
}

}  // namespace

MemoryMeasure ParseMemory(const std::string& meminfo) {
  return {.total_bytes = KilobytesOf(meminfo, "MemTotal"),
          .swap_total_bytes = KilobytesOf(meminfo, "SwapTotal"),
          .swap_free_bytes = KilobytesOf(meminfo, "SwapFree")};
}

ClockMeasure MeasureClock() {
  timex state = {};
  const int said = adjtimex(&state);
  if (said < 0) return {.error = std::strerror(errno)};
  return {.synchronized =
              said != TIME_ERROR && (state.status & STA_UNSYNC) == 0};
}

PathMeasure MeasurePath(const std::string& path) {
  // The call may outlive this one, where the kernel does not answer.
  const auto found = std::make_shared<PathMeasure>();
  if (CallWithinLimit(path, [path, found] { *found = LookAt(path); })) {
    return *found;
  }
  return {.kind = PathMeasure::Kind::kHangs, .error = OpenErrorText(errno)};
}

std::optional<uint64_t> SoftLimit(int resource) {
  return LimitOf(Limits(resource).rlim_cur);
}

std::optional<uint64_t> HardLimit(int resource) {
  return LimitOf(Limits(resource).rlim_max);
}

bool MayBeRealtime() {
  const std::optional<uint64_t> limit = SoftLimit(RLIMIT_RTPRIO);
  return !limit.has_value() || *limit >= kOurRealtimePriority ||
         HasCapability(CAP_SYS_NICE);
}

std::string ReadSystemFile(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return "";
  std::string text;
  ReadToEnd([&file](char* target,
                    size_t bytes) { return read(file.get(), target, bytes); },
            [&text](absl::string_view piece) {
              absl::StrAppend(
                  &text, piece.substr(0, kMostSystemFileBytes - text.size()));
              return text.size() < kMostSystemFileBytes;
            });
  return text;
}

std::string KernelRelease() {
  utsname name = {};
  return uname(&name) == 0 ? name.release : "";
}

}  // namespace roundhouse
