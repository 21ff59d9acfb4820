#include "base/log.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/visible_text.h"

namespace roundhouse {
namespace {

std::atomic<LogLevel> log_level{LogLevel::kInfo};
char log_name[64] = "roundhouse";

const char* BaseName(const char* path) {
  const char* name = path;
  for (const char* c = path; *c != '\0'; ++c) {
    if (*c == '/') name = c + 1;
  }
  return name;
}

}  // namespace

void SetLogLevel(LogLevel level) { log_level = level; }

void SetLogName(const char* name) {
  std::snprintf(log_name, sizeof(log_name), "%s", name);
}

namespace internal {

LogLine::LogLine(LogLevel level, const char* file, int line, bool fatal)
    : level_(level), fatal_(fatal) {
  const timespec now = absl::ToTimespec(WallTime());
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  char head[160];
  std::snprintf(
      head, sizeof(head), "%c %04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s:%d ",
      "DIWE"[static_cast<int>(level)], utc.tm_year + 1900, utc.tm_mon + 1,
      utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec / 1000000,
      log_name, BaseName(file), line);
  stream_ << head;
}

LogLine::~LogLine() {
  if (fatal_ || level_ >= log_level.load()) {
    // One line, whatever a name in it holds (visible_text.h).
    const std::string line = VisibleLine(stream_.str()) + "\n";
    // A log line that cannot be written has nowhere to be reported.
    [[maybe_unused]] ssize_t n = write(STDERR_FILENO, line.data(), line.size());
  }
  if (fatal_) std::abort();
}

}  // namespace internal
}  // namespace roundhouse
