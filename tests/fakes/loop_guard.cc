// A test's guard: nothing that an event loop runs opens a file or a directory
// on a disk, for slots are passed on by the loop's thread and a disk may take
// seconds.  EventLoop::Run says which thread that is; the guard sees the calls
// of that thread that open something, whoever makes them: std::ifstream,
// std::filesystem, SQLite, openat2.
//
// Linked into a unit test (//tests/fakes:loop_guard_linked) it ends the test at
// the first such call.  Preloaded into a daemon (LD_PRELOAD) it appends a line
// to the file that ROUNDHOUSE_LOOP_GUARD names, which
// tests/integration/harness.py looks for:
//
//   call, path, callers (object+offset, for addr2line), with tabs between them
//
// A call that fails is reported as well: the path was looked up on the disk.
// What is no file on a disk is not: sockets, pipes, memory, devices, /proc and
// /sys.  kAllowed names the rest that may be opened, and why.
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>

namespace {

constexpr int kMaxFrames = 24;
constexpr int kLineBytes = 3 * PATH_MAX;

struct Allowed {
  const char* end;  // of the path
  const char* why;
};

constexpr Allowed kAllowed[] = {
    // The job store writes on the loop by design (server/jobs/transitions.h): a
    // transition is on disk before anyone sees it.  SQLite opens its log, and
    // syncs the folder of a log that it made, at the first write.
    {"/jobs.db-wal", "SQLite's log"},
    {"/jobs.db-shm", "the memory that SQLite's connections share"},
    {"/jobs.db-journal", "SQLite's journal"},
};

constexpr const char* kNoDisk[] = {"/proc/", "/sys/", "/dev/"};

thread_local bool runs_loop = false;
thread_local bool reporting = false;  // what a report does is not looked at

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

bool EndsWith(const char* text, const char* end) {
  const size_t bytes = strlen(text), wanted = strlen(end);
  return bytes >= wanted && strcmp(text + bytes - wanted, end) == 0;
}

bool MayBeOpened(const char* path) {
  for (const char* folder : kNoDisk) {
    if (strncmp(path, folder, strlen(folder)) == 0) return true;
  }
  for (const Allowed& allowed : kAllowed) {
    if (EndsWith(path, allowed.end)) return true;
  }
  return false;
}

// Whether the descriptor is of something on a disk; -1: the call failed.
bool IsOnDisk(int opened) {
  if (opened < 0) return true;
  struct stat info;
  if (fstat(opened, &info) != 0) return true;
  return S_ISREG(info.st_mode) || S_ISDIR(info.st_mode);
}

void AppendCallers(char* line, size_t bytes) {
  void* frames[kMaxFrames];
  const int count = backtrace(frames, kMaxFrames);
  for (int i = 2; i < count; ++i) {
    Dl_info info;
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) continue;
    const char* const slash = strrchr(info.dli_fname, '/');
    const size_t used = strlen(line);
    snprintf(line + used, bytes - used, " %.60s+0x%zx",
             slash == nullptr ? info.dli_fname : slash + 1,
             static_cast<size_t>(static_cast<char*>(frames[i]) -
                                 static_cast<char*>(info.dli_fbase)));
  }
}

void Write(const char* call, const char* path) {
  char line[kLineBytes];
  snprintf(line, sizeof(line), "%s\t%s\t", call, path);
  AppendCallers(line, sizeof(line) - 1);
  strcat(line, "\n");
  const char* const report = getenv("ROUNDHOUSE_LOOP_GUARD");
  if (report == nullptr) {
    dprintf(STDERR_FILENO, "the event loop's thread opens a file: %s", line);
    abort();
  }
  const int fd =
      NEXT(open)(report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const ssize_t bytes = static_cast<ssize_t>(strlen(line));
  if (fd < 0 || write(fd, line, strlen(line)) != bytes) {
    dprintf(STDERR_FILENO, "loop_guard: no report of %s", line);
  }
  if (fd >= 0) close(fd);
}

// Keeps errno.
void Report(const char* call, const char* path, int opened) {
  if (!runs_loop || reporting) return;
  const int error = errno;
  reporting = true;
  if (path == nullptr) path = "?";
  if (!MayBeOpened(path) && IsOnDisk(opened)) Write(call, path);
  reporting = false;
  errno = error;
}

// A call of libc that opens by itself, beyond any function that can be seen.
class Within {
 public:
  Within() : before_(reporting) { reporting = true; }
  ~Within() { reporting = before_; }

 private:
  const bool before_;
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void roundhouse_set_runs_loop(bool runs) { runs_loop = runs; }

#define OPEN(function)                                    \
  int function(const char* path, int flags, ...) {        \
    va_list rest;                                         \
    va_start(rest, flags);                                \
    const mode_t mode = va_arg(rest, mode_t);             \
    va_end(rest);                                         \
    const int opened = NEXT(function)(path, flags, mode); \
    Report(#function, path, opened);                      \
    return opened;                                        \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(function)                                          \
  int function(int folder, const char* path, int flags, ...) {    \
    va_list rest;                                                 \
    va_start(rest, flags);                                        \
    const mode_t mode = va_arg(rest, mode_t);                     \
    va_end(rest);                                                 \
    const int opened = NEXT(function)(folder, path, flags, mode); \
    Report(#function, path, opened);                              \
    return opened;                                                \
  }
OPENAT(openat)
OPENAT(openat64)

// Fortified programs call these.
#define FORTIFIED_OPEN(function)                    \
  int function(const char* path, int flags) {       \
    const int opened = NEXT(function)(path, flags); \
    Report(#function, path, opened);                \
    return opened;                                  \
  }
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
FORTIFIED_OPEN(__open_2)
FORTIFIED_OPEN(__open64_2)

#define FORTIFIED_OPENAT(function)                          \
  int function(int folder, const char* path, int flags) {   \
    const int opened = NEXT(function)(folder, path, flags); \
    Report(#function, path, opened);                        \
    return opened;                                          \
  }
int __openat_2(int folder, const char* path, int flags);
int __openat64_2(int folder, const char* path, int flags);
FORTIFIED_OPENAT(__openat_2)
FORTIFIED_OPENAT(__openat64_2)

#define CREAT(function)                            \
  int function(const char* path, mode_t mode) {    \
    const int opened = NEXT(function)(path, mode); \
    Report(#function, path, opened);               \
    return opened;                                 \
  }
CREAT(creat)
CREAT(creat64)

// From here on libc opens within itself.
#define FOPEN(function)                                               \
  FILE* function(const char* path, const char* mode) {                \
    FILE* const opened = NEXT(function)(path, mode);                  \
    Report(#function, path, opened == nullptr ? -1 : fileno(opened)); \
    return opened;                                                    \
  }
FOPEN(fopen)
FOPEN(fopen64)

DIR* opendir(const char* path) {
  DIR* const opened = NEXT(opendir)(path);
  Report("opendir", path, opened == nullptr ? -1 : dirfd(opened));
  return opened;
}

#define MAKE_TEMPORARY(function)             \
  int function(char* name) {                 \
    const int opened = NEXT(function)(name); \
    Report(#function, name, opened);         \
    return opened;                           \
  }
MAKE_TEMPORARY(mkstemp)
MAKE_TEMPORARY(mkstemp64)

#define MAKE_TEMPORARY_WITH_FLAGS(function)         \
  int function(char* name, int flags) {             \
    const int opened = NEXT(function)(name, flags); \
    Report(#function, name, opened);                \
    return opened;                                  \
  }
MAKE_TEMPORARY_WITH_FLAGS(mkostemp)
MAKE_TEMPORARY_WITH_FLAGS(mkostemp64)

FILE* tmpfile() {
  Report("tmpfile", "a temporary file", -1);
  return NEXT(tmpfile)();
}

int scandir(const char* path, struct dirent*** names,
            int (*filter)(const struct dirent*),
            int (*compare)(const struct dirent**, const struct dirent**)) {
  Report("scandir", path, -1);
  const Within within;
  return NEXT(scandir)(path, names, filter, compare);
}

int glob(const char* pattern, int flags, int (*failed)(const char*, int),
         glob_t* found) noexcept {
  Report("glob", pattern, -1);
  const Within within;
  return NEXT(glob)(pattern, flags, failed, found);
}

int nftw(const char* path, __nftw_func_t each, int descriptors, int flags) {
  Report("nftw", path, -1);
  const Within within;
  return NEXT(nftw)(path, each, descriptors, flags);
}

// openat2 has no function of libc.  Every call takes at most six arguments.
long syscall(long number, ...) noexcept {
  va_list rest;
  va_start(rest, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(rest, long);
  va_end(rest);
  const long result =
      NEXT(syscall)(number, arguments[0], arguments[1], arguments[2],
                    arguments[3], arguments[4], arguments[5]);
  if (number == SYS_openat2 || number == SYS_openat) {
    Report("openat2", reinterpret_cast<const char*>(arguments[1]),
           static_cast<int>(result));
  } else if (number == SYS_open) {
    Report("open", reinterpret_cast<const char*>(arguments[0]),
           static_cast<int>(result));
  }
  return result;
}

}  // extern "C"
#pragma GCC visibility pop
