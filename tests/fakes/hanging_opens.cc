// A mount whose server is gone, for a daemon that it is preloaded into
// (LD_PRELOAD): while the file that ROUNDHOUSE_HANGS_WHILE names is there, a
// lookup of a path with ROUNDHOUSE_HANGS in it does not come back, as the
// kernel's do not.  Lookups beneath data roots alone: they are openat2's.
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/fakes/interposing.h"

namespace {

bool Hangs(const char* path) {
  const char* const part = getenv("ROUNDHOUSE_HANGS");
  const char* const marker = getenv("ROUNDHOUSE_HANGS_WHILE");
  return part != nullptr && marker != nullptr &&
         strstr(path, part) != nullptr && access(marker, F_OK) == 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Every call takes at most six arguments.
long syscall(long number, ...) noexcept {
  va_list rest;
  va_start(rest, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_openat2) {
    while (Hangs(reinterpret_cast<const char*>(arguments[1]))) {
      usleep(10000);
    }
  }
  return NEXT(syscall)(number, arguments[0], arguments[1], arguments[2],
                       arguments[3], arguments[4], arguments[5]);
}

}  // extern "C"
#pragma GCC visibility pop
