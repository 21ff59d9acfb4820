// A library that a test preloads (LD_PRELOAD) into daemon, workers and dataset
// helper: it reports every call that opens a file for writing, makes, renames,
// links, truncates or removes something below the folders that the test names,
// and whether the calling thread was at a named site just then
// (base/files/at_file_site.h).  It looks on; no call is changed.
//
//   ROUNDHOUSE_INTERPOSER_ROOTS   real paths of folders, with ':' between them
//   ROUNDHOUSE_INTERPOSER_REPORT  a file outside them; lines are appended
//
// A line has these fields, with tabs between them:
//
//   process id, command line (blanks between words), call, site, path, callers
//
// The site is "-" where there is none, and the callers (object+offset, for
// addr2line) are named only then.  A process that begins with the library
// writes a line of the call "loaded"; a forked one has the library too, as
// /proc/PID/maps shows.
//
// What the job store's SQLite does to its own files is a site, known by their
// names.  Writing to descriptors is not looked at: who opened one is.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

#include "tests/fakes/interposing.h"

namespace {

constexpr char kStoreSite[] = "store (SQLite)";
constexpr int kMaxRoots = 8;
constexpr int kLineBytes = 3 * PATH_MAX;

thread_local const char* current_site = nullptr;
thread_local bool reporting = false;  // what a report does is not looked at

struct Settings {
  const char* report = nullptr;
  char roots[kMaxRoots][PATH_MAX] = {};
  int root_count = 0;
};

Settings ReadSettings() {
  Settings settings;
  settings.report = getenv("ROUNDHOUSE_INTERPOSER_REPORT");
  const char* text = getenv("ROUNDHOUSE_INTERPOSER_ROOTS");
  if (settings.report != nullptr) settings.report = strdup(settings.report);
  while (text != nullptr && *text != '\0' && settings.root_count < kMaxRoots) {
    const size_t bytes = strcspn(text, ":");
    if (bytes < PATH_MAX) {
      memcpy(settings.roots[settings.root_count++], text, bytes);
    }
    text += bytes;
    if (*text == ':') ++text;
  }
  return settings;
}

const Settings& TheSettings() {
  static const Settings settings = ReadSettings();
  return settings;
}

bool IsBelowRoots(const char* path) {
  const Settings& settings = TheSettings();
  for (int i = 0; i < settings.root_count; ++i) {
    const size_t bytes = strlen(settings.roots[i]);
    if (strncmp(path, settings.roots[i], bytes) == 0 &&
        (path[bytes] == '/' || path[bytes] == '\0')) {
      return true;
    }
  }
  return false;
}

// Knows jobs.db, its log and shared memory, and the copy that SQLite fills.
bool IsOfSqlite(const char* path) {
  const char* const slash = strrchr(path, '/');
  const char* const name = slash == nullptr ? path : slash + 1;
  constexpr char kNew[] = "jobs.db.backup.new";
  for (const char* own :
       {"jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db-journal"}) {
    if (strcmp(name, own) == 0) return true;
  }
  return strncmp(name, kNew, sizeof(kNew) - 1) == 0;
}

// --- Where a path leads ---

// Finds where the descriptor's file is now; false where that has no path.
bool PathOf(int descriptor, char* path) {
  char link[64];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t bytes = readlink(link, path, PATH_MAX - 1);
  if (bytes <= 0) return false;
  path[bytes] = '\0';
  return path[0] == '/';
}

// Finds the real path of its folder, and adds its last name, which is not
// followed.
bool Resolve(int folder, const char* path, char* resolved) {
  char text[2 * PATH_MAX] = "";
  if (path[0] != '/') {
    char base[PATH_MAX];
    const bool found = folder == AT_FDCWD
                           ? getcwd(base, sizeof(base)) != nullptr
                           : PathOf(folder, base);
    if (!found) return false;
    snprintf(text, sizeof(text), "%s/", base);
  }
  strncat(text, path, PATH_MAX - 1);
  for (size_t end = strlen(text); end > 1 && text[end - 1] == '/'; --end) {
    text[end - 1] = '\0';
  }
  char* const slash = strrchr(text, '/');
  const char* const name = slash + 1;
  char parent[PATH_MAX];
  *slash = '\0';
  if (realpath(slash == text ? "/" : text, parent) == nullptr) return false;
  const int bytes = snprintf(resolved, PATH_MAX, "%s/%s", parent, name);
  return bytes < PATH_MAX;  // a longer one is no path for the kernel either
}

// --- Reports ---

// Reads the command line each time: a forked worker has one of its own.
void CommandLine(char* text, size_t bytes) {
  const int fd = NEXT(open)("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd < 0 ? 0 : read(fd, text, bytes - 1);
  if (fd >= 0) close(fd);
  const size_t end = got > 0 ? static_cast<size_t>(got) : 0;
  for (size_t i = 0; i < end; ++i) {
    const bool plain = text[i] > ' ' && text[i] < 0x7f;
    if (!plain) text[i] = ' ';
  }
  text[end] = '\0';
}

// Keeps errno.
void Write(const char* call, const char* path) {
  const Settings& settings = TheSettings();
  if (settings.report == nullptr) return;
  const int error = errno;
  const char* site = current_site;
  if (site == nullptr && IsOfSqlite(path)) site = kStoreSite;
  char command[512];
  CommandLine(command, sizeof(command));
  char line[kLineBytes];
  snprintf(line, sizeof(line), "%d\t%s\t%s\t%s\t%s\t", getpid(), command, call,
           site == nullptr ? "-" : site, path);
  if (site == nullptr) AppendCallers(line, sizeof(line) - 1, "file_interposer");
  strcat(line, "\n");
  AppendToReport(settings.report, line);
  errno = error;
}

// Reports a call whose `path` is as somebody gave it.
void Report(const char* call, int folder, const char* path) {
  if (reporting || path == nullptr) return;
  reporting = true;
  const int error = errno;
  char resolved[PATH_MAX];
  if (Resolve(folder, path, resolved) && IsBelowRoots(resolved)) {
    Write(call, resolved);
  }
  errno = error;
  reporting = false;
}

bool Writes(int flags) {
  return (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0 ||
         (flags & O_TMPFILE) == O_TMPFILE;
}

// Reports what was opened for writing, or what could not be.
void AfterOpen(const char* call, int folder, const char* path, int opened,
               int flags) {
  if (!Writes(flags)) return;
  if (opened < 0) return Report(call, folder, path);
  if (reporting) return;
  reporting = true;
  const int error = errno;
  char resolved[PATH_MAX];
  if (PathOf(opened, resolved) && IsBelowRoots(resolved)) Write(call, resolved);
  errno = error;
  reporting = false;
}

__attribute__((constructor)) void Loaded() {
  reporting = true;
  Write("loaded", "-");
  reporting = false;
}

}  // namespace

// --- The calls ---

#pragma GCC visibility push(default)
extern "C" {

// Sets the thread's site and answers the one before; null stands for none.
const char* roundhouse_set_file_site(const char* site) {
  const char* const before = current_site;
  current_site = site;
  return before;
}

#include "tests/fakes/interposed_opens.h"

char* mkdtemp(char* name) noexcept {
  char* const made = NEXT(mkdtemp)(name);
  Report("mkdtemp", AT_FDCWD, name);
  return made;
}

// The other calls look up the path first, for it may be gone after.  A CALL has
// the function's parameters, its arguments, the folder of the path, the path.
#define CALL(function, parameters, arguments, folder, path) \
  int function parameters noexcept {                        \
    Report(#function, folder, path);                        \
    return NEXT(function) arguments;                        \
  }
CALL(mkdir, (const char* path, mode_t mode), (path, mode), AT_FDCWD, path)
CALL(mkdirat, (int folder, const char* path, mode_t mode), (folder, path, mode),
     folder, path)
CALL(mkfifo, (const char* path, mode_t mode), (path, mode), AT_FDCWD, path)
CALL(mkfifoat, (int folder, const char* path, mode_t mode),
     (folder, path, mode), folder, path)
CALL(mknod, (const char* path, mode_t mode, dev_t device), (path, mode, device),
     AT_FDCWD, path)
CALL(mknodat, (int folder, const char* path, mode_t mode, dev_t device),
     (folder, path, mode, device), folder, path)
CALL(unlink, (const char* path), (path), AT_FDCWD, path)
CALL(unlinkat, (int folder, const char* path, int flags), (folder, path, flags),
     folder, path)
CALL(rmdir, (const char* path), (path), AT_FDCWD, path)
CALL(remove, (const char* path), (path), AT_FDCWD, path)
CALL(symlink, (const char* target, const char* path), (target, path), AT_FDCWD,
     path)
CALL(symlinkat, (const char* target, int folder, const char* path),
     (target, folder, path), folder, path)
CALL(link, (const char* from, const char* to), (from, to), AT_FDCWD, to)
CALL(linkat,
     (int from_folder, const char* from, int to_folder, const char* to,
      int flags),
     (from_folder, from, to_folder, to, flags), to_folder, to)
CALL(truncate, (const char* path, off_t bytes), (path, bytes), AT_FDCWD, path)
CALL(truncate64, (const char* path, off64_t bytes), (path, bytes), AT_FDCWD,
     path)

int rename(const char* from, const char* to) noexcept {
  Report("rename", AT_FDCWD, from);
  Report("rename", AT_FDCWD, to);
  return NEXT(rename)(from, to);
}

int renameat(int from_folder, const char* from, int to_folder,
             const char* to) noexcept {
  Report("renameat", from_folder, from);
  Report("renameat", to_folder, to);
  return NEXT(renameat)(from_folder, from, to_folder, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned int flags) noexcept {
  Report("renameat2", from_folder, from);
  Report("renameat2", to_folder, to);
  return NEXT(renameat2)(from_folder, from, to_folder, to, flags);
}

// A socket has a file.
int bind(int socket, const struct sockaddr* address, socklen_t bytes) noexcept {
  if (address->sa_family == AF_UNIX && bytes > sizeof(sa_family_t)) {
    const auto* const named = reinterpret_cast<const sockaddr_un*>(address);
    if (named->sun_path[0] != '\0') Report("bind", AT_FDCWD, named->sun_path);
  }
  return NEXT(bind)(socket, address, bytes);
}

}  // extern "C"
#pragma GCC visibility pop
