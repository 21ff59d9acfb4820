// libc's functions and system calls that open files, for a preloaded library:
// each calls the next library's, then
//
//   AfterOpen(call, folder, path, opened, flags)
//
// which the library defines before.  `folder` is AT_FDCWD but for openat,
// `opened` is -1 where the call failed, `flags` are those of open.  Included
// once, within the .cc file's extern "C".
#ifndef ROUNDHOUSE_TESTS_FAKES_INTERPOSED_OPENS_H_
#define ROUNDHOUSE_TESTS_FAKES_INTERPOSED_OPENS_H_

// Where there is no O_CREAT and no O_TMPFILE the mode is whatever lies there,
// and the next function does not look at it either.
#define OPEN(function)                                    \
  int function(const char* path, int flags, ...) {        \
    va_list rest;                                         \
    va_start(rest, flags);                                \
    const mode_t mode = va_arg(rest, mode_t);             \
    va_end(rest);                                         \
    const int opened = NEXT(function)(path, flags, mode); \
    AfterOpen(#function, AT_FDCWD, path, opened, flags);  \
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
    AfterOpen(#function, folder, path, opened, flags);            \
    return opened;                                                \
  }
OPENAT(openat)
OPENAT(openat64)

// Fortified programs call these.
#define FORTIFIED_OPEN(function)                         \
  int function(const char* path, int flags) {            \
    const int opened = NEXT(function)(path, flags);      \
    AfterOpen(#function, AT_FDCWD, path, opened, flags); \
    return opened;                                       \
  }
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
FORTIFIED_OPEN(__open_2)
FORTIFIED_OPEN(__open64_2)

#define FORTIFIED_OPENAT(function)                          \
  int function(int folder, const char* path, int flags) {   \
    const int opened = NEXT(function)(folder, path, flags); \
    AfterOpen(#function, folder, path, opened, flags);      \
    return opened;                                          \
  }
int __openat_2(int folder, const char* path, int flags);
int __openat64_2(int folder, const char* path, int flags);
FORTIFIED_OPENAT(__openat_2)
FORTIFIED_OPENAT(__openat64_2)

#define CREAT(function)                                     \
  int function(const char* path, mode_t mode) {             \
    const int opened = NEXT(function)(path, mode);          \
    AfterOpen(#function, AT_FDCWD, path, opened, O_WRONLY); \
    return opened;                                          \
  }
CREAT(creat)
CREAT(creat64)

// Within libc these do not go through open.
#define FOPEN(function)                                             \
  FILE* function(const char* path, const char* mode) {              \
    FILE* const opened = NEXT(function)(path, mode);                \
    AfterOpen(#function, AT_FDCWD, path,                            \
              opened == nullptr ? -1 : fileno(opened),              \
              strpbrk(mode, "wa+") != nullptr ? O_RDWR : O_RDONLY); \
    return opened;                                                  \
  }
FOPEN(fopen)
FOPEN(fopen64)

// What was made is in `name` then.
#define MAKE_TEMPORARY(function)                          \
  int function(char* name) {                              \
    const int opened = NEXT(function)(name);              \
    AfterOpen(#function, AT_FDCWD, name, opened, O_RDWR); \
    return opened;                                        \
  }
MAKE_TEMPORARY(mkstemp)
MAKE_TEMPORARY(mkstemp64)

#define MAKE_TEMPORARY_WITH_FLAGS(function)               \
  int function(char* name, int flags) {                   \
    const int opened = NEXT(function)(name, flags);       \
    AfterOpen(#function, AT_FDCWD, name, opened, O_RDWR); \
    return opened;                                        \
  }
MAKE_TEMPORARY_WITH_FLAGS(mkostemp)
MAKE_TEMPORARY_WITH_FLAGS(mkostemp64)

// openat2 has no function of libc.  Every call takes at most six arguments; who
// gave fewer has something else on the stack.
__attribute__((no_sanitize("address"))) long syscall(long number,
                                                     ...) noexcept {
  va_list rest;
  va_start(rest, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(rest, long);
  va_end(rest);
  const long result =
      NEXT(syscall)(number, arguments[0], arguments[1], arguments[2],
                    arguments[3], arguments[4], arguments[5]);
  const auto after = [&](const char* call, long folder, long path, long flags) {
    AfterOpen(call, static_cast<int>(folder),
              reinterpret_cast<const char*>(path), static_cast<int>(result),
              static_cast<int>(flags));
  };
  if (number == SYS_openat2) {
    const auto* const how = reinterpret_cast<const open_how*>(arguments[2]);
    after("openat2", arguments[0], arguments[1], static_cast<long>(how->flags));
  } else if (number == SYS_openat) {
    after("openat", arguments[0], arguments[1], arguments[2]);
  } else if (number == SYS_open) {
    after("open", AT_FDCWD, arguments[0], arguments[1]);
  }
  return result;
}

#endif  // ROUNDHOUSE_TESTS_FAKES_INTERPOSED_OPENS_H_
