// A test's guard: nothing that an event loop runs opens a file or a directory
// on a disk, or looks one up by its name (stat, access, realpath), for slots
// are passed on by the loop's thread and a disk may take seconds.
// EventLoop::Run says which thread that is; the guard sees the calls of that
// thread, whoever makes them: std::ifstream, std::filesystem, SQLite, openat2.
// It does not see fstat of what is open, and statvfs, which asks for the state
// directory's free blocks.
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

#include "tests/fakes/interposing.h"

namespace {

constexpr int kLineBytes = 3 * PATH_MAX;

struct Allowed {
  const char* end;  // of the path
  const char* why;
};

constexpr Allowed kAllowed[] = {
    // The job store writes on the loop by design (server/jobs/transitions.h): a
    // transition is on disk before anyone sees it.  SQLite opens its log, and
    // syncs the folder of a log that it made, at the first write.
    {"/jobs.db", "whether it was moved away"},
    {"/jobs.db-wal", "SQLite's log"},
    {"/jobs.db-shm", "the memory that SQLite's connections share"},
    {"/jobs.db-journal", "SQLite's journal"},
};

constexpr const char* kNoDisk[] = {"/proc/", "/sys/", "/dev/"};

thread_local bool runs_loop = false;
thread_local bool reporting = false;  // what a report does is not looked at

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

void Write(const char* call, const char* path) {
  char line[kLineBytes];
  snprintf(line, sizeof(line), "%s\t%s\t", call, path);
  AppendCallers(line, sizeof(line) - 1, "loop_guard");
  strcat(line, "\n");
  const char* const report = getenv("ROUNDHOUSE_LOOP_GUARD");
  if (report == nullptr) {
    dprintf(STDERR_FILENO, "the event loop's thread opens a file: %s", line);
    abort();
  }
  AppendToReport(report, line);
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

void AfterOpen(const char* call, int, const char* path, int opened, int) {
  Report(call, path, opened);
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

#include "tests/fakes/interposed_opens.h"

// From here on libc opens within itself.
DIR* opendir(const char* path) {
  DIR* const opened = NEXT(opendir)(path);
  Report("opendir", path, opened == nullptr ? -1 : dirfd(opened));
  return opened;
}

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

// These look a name up.
#define LOOKUP(function, parameters, arguments)       \
  int function parameters noexcept {                  \
    if (path[0] != '\0') Report(#function, path, -1); \
    return NEXT(function) arguments;                  \
  }
LOOKUP(stat, (const char* path, struct stat* info), (path, info))
LOOKUP(stat64, (const char* path, struct stat64* info), (path, info))
LOOKUP(lstat, (const char* path, struct stat* info), (path, info))
LOOKUP(lstat64, (const char* path, struct stat64* info), (path, info))
LOOKUP(fstatat, (int folder, const char* path, struct stat* info, int flags),
       (folder, path, info, flags))
LOOKUP(fstatat64,
       (int folder, const char* path, struct stat64* info, int flags),
       (folder, path, info, flags))
LOOKUP(statx,
       (int folder, const char* path, int flags, unsigned int mask,
        struct statx* info),
       (folder, path, flags, mask, info))
LOOKUP(access, (const char* path, int mode), (path, mode))
LOOKUP(faccessat, (int folder, const char* path, int mode, int flags),
       (folder, path, mode, flags))

char* realpath(const char* path, char* real) noexcept {
  Report("realpath", path, -1);
  return NEXT(realpath)(path, real);
}

int nftw(const char* path, __nftw_func_t each, int descriptors, int flags) {
  Report("nftw", path, -1);
  const Within within;
  return NEXT(nftw)(path, each, descriptors, flags);
}

}  // extern "C"
#pragma GCC visibility pop
