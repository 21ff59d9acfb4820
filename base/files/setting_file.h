// Small files that settings of the daemon name: certificates, keys, tokens.
//
// Blocking.  Thread-safe.
#ifndef ROUNDHOUSE_BASE_FILES_SETTING_FILE_H_
#define ROUNDHOUSE_BASE_FILES_SETTING_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace roundhouse {

// The length of a secret in a file, in bytes.
inline constexpr size_t kMaxSecretBytes = 4096;

// kInvalidArgument: "--FLAG: FILE: WHAT".
absl::Status BadSettingFile(absl::string_view flag, absl::string_view path,
                            absl::string_view what);

// All of it.  kInvalidArgument: it can't be read, is no file, or is longer than
// `most` bytes.
absl::StatusOr<std::string> ReadSettingFile(absl::string_view flag,
                                            const std::string& path,
                                            size_t most);

// The one word of a file that holds a secret.  kInvalidArgument as above, and
// where the file is neither root's nor this process's user's, others may read
// it or a group may change it, or where it is not one word of `least` to
// kMaxSecretBytes visible characters.  No message has anything of it.
absl::StatusOr<std::string> ReadSecretFile(absl::string_view flag,
                                           const std::string& path,
                                           size_t least = 1);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_SETTING_FILE_H_
