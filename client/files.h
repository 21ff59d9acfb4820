// Reading the small files a client needs: job files and its config.
#ifndef ROUNDHOUSE_CLIENT_FILES_H_
#define ROUNDHOUSE_CLIENT_FILES_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace roundhouse::client {

// The whole file; "-" is standard input.  kNotFound: no such file;
// kInvalidArgument: cannot be read, or longer than `limit_bytes`; all name the
// file.  Blocking; thread-safe.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path,
                                          size_t limit_bytes);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_FILES_H_
