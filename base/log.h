// One line per event on stderr, and checks that never compile out.
//
//   RH_LOG(kInfo) << "listening on " << path;
//   ROUNDHOUSE_CHECK(offset % 64 == 0) << offset;
//
// The names differ from LOG and CHECK because LibTorch's and glog's macros of
// those names are seen by some of our files.  Thread-safe: a line is one
// write(2).
#ifndef ROUNDHOUSE_BASE_LOG_H_
#define ROUNDHOUSE_BASE_LOG_H_

#include <sstream>

namespace roundhouse {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Lines below `level` are dropped.  Default kInfo.  Call before threads start.
void SetLogLevel(LogLevel level);
// The name put into every line ("roundhoused", "worker 3").
void SetLogName(const char* name);

namespace internal {

class LogLine {
 public:
  LogLine(LogLevel level, const char* file, int line, bool fatal);
  ~LogLine();  // Writes; aborts when fatal.
  LogLine(const LogLine&) = delete;
  LogLine& operator=(const LogLine&) = delete;
  std::ostream& stream() { return stream_; }

 private:
  LogLevel level_;
  bool fatal_;
  std::ostringstream stream_;
};

struct Voidify {
  void operator&(std::ostream&) const {}
};

}  // namespace internal
}  // namespace roundhouse

#define RH_LOG(level)                                                      \
  ::roundhouse::internal::LogLine(::roundhouse::LogLevel::level, __FILE__, \
                                  __LINE__, false)                         \
      .stream()

// A broken invariant of our own code: prints and aborts, in every build.
#define ROUNDHOUSE_CHECK(condition)                                         \
  (condition)                                                               \
      ? (void)0                                                             \
      : ::roundhouse::internal::Voidify() &                                 \
            ::roundhouse::internal::LogLine(::roundhouse::LogLevel::kError, \
                                            __FILE__, __LINE__, true)       \
                    .stream()                                               \
                << "check failed: " #condition " "

#endif  // ROUNDHOUSE_BASE_LOG_H_
