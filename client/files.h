// The small files a client reads, job files and its config, and what it writes
// for people to open elsewhere.
#ifndef ROUNDHOUSE_CLIENT_FILES_H_
#define ROUNDHOUSE_CLIENT_FILES_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roundhouse::client {

// The whole file; "-" is standard input.  kNotFound: no such file;
// kInvalidArgument: cannot be read, or longer than `limit_bytes`; all name the
// file.  Blocking; thread-safe.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path,
                                          size_t limit_bytes);

// Replaces what is there.  kInvalidArgument names the file and why it cannot be
// written, whole.  Blocking; thread-safe.
absl::Status WriteTextFile(const std::string& path, const std::string& text);

// The same for a file that is its owner's alone (0600), in a folder that is
// made where it is not there (0700): whole or not at all, and on disk.
absl::Status WritePrivateFile(const std::string& path, const std::string& text);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_FILES_H_
