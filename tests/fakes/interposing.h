// What the preloaded libraries of tests share: the next library's functions,
// and lines of a report.  For their .cc files alone.
#ifndef ROUNDHOUSE_TESTS_FAKES_INTERPOSING_H_
#define ROUNDHOUSE_TESTS_FAKES_INTERPOSING_H_

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace {

// Finds the next library's function of that name.
template <typename Function>
Function* Next(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define NEXT(function)                                    \
  ([] {                                                   \
    static auto* const next = Next(&function, #function); \
    return next;                                          \
  }())

// Adds object+offset of each caller, for addr2line, but those of the library
// itself.
inline void AppendCallers(char* line, size_t bytes, const char* library) {
  constexpr int kMaxFrames = 24;
  void* frames[kMaxFrames];
  const int count = backtrace(frames, kMaxFrames);
  for (int i = 0; i < count; ++i) {
    Dl_info info;
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) continue;
    const char* const slash = strrchr(info.dli_fname, '/');
    const char* const object = slash == nullptr ? info.dli_fname : slash + 1;
    if (strstr(object, library) != nullptr) continue;
    const size_t used = strlen(line);
    snprintf(line + used, bytes - used, " %.60s+0x%zx", object,
             static_cast<size_t>(static_cast<char*>(frames[i]) -
                                 static_cast<char*>(info.dli_fbase)));
  }
}

// A line that can't be written is told on stderr, so that it is not missed in
// silence.
inline void AppendToReport(const char* report, const char* line) {
  const int fd =
      NEXT(open)(report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const ssize_t bytes = static_cast<ssize_t>(strlen(line));
  if (fd < 0 || write(fd, line, strlen(line)) != bytes) {
    dprintf(STDERR_FILENO, "%s: no report of %s", report, line);
  }
  if (fd >= 0) close(fd);
}

}  // namespace

#endif  // ROUNDHOUSE_TESTS_FAKES_INTERPOSING_H_
