// Reads and writes that go on until all is done, however little the system
// takes or gives at a time, and through interruptions (EINTR).
//
// They know nothing of the file and say what went wrong in errno alone: what
// the file is to a caller, and so the error, is the caller's.  The calls are
// given where they have a site (file_fault.h).  Blocking.
#ifndef ROUNDHOUSE_BASE_FILES_WHOLE_IO_H_
#define ROUNDHOUSE_BASE_FILES_WHOLE_IO_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace roundhouse {

// Read or written at a time.
inline constexpr size_t kIoPieceBytes = 1 << 20;

// As read and write of one descriptor are.
using ReadCall = absl::FunctionRef<ssize_t(char* target, size_t bytes)>;
using WriteCall = absl::FunctionRef<ssize_t(const char* from, size_t bytes)>;

// False with errno: not all was written.
bool WriteAll(absl::string_view bytes, WriteCall write);
bool WriteAll(int fd, absl::string_view bytes);

// Calls `take` with all that is left to read, piece by piece, until it says
// false.  False with errno: `read` failed.
bool ReadToEnd(ReadCall read, absl::FunctionRef<bool(absl::string_view)> take);

// Reads [offset, offset + bytes) and says how much of it there was: less only
// where the file ends.  None with errno: it cannot be read; `target` is
// undefined.
std::optional<size_t> ReadAt(int fd, uint64_t offset, char* target,
                             size_t bytes);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_WHOLE_IO_H_
