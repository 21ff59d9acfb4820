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

// The length of a token in a file, in bytes.
inline constexpr size_t kMinSecretBytes = 24;
inline constexpr size_t kMaxSecretBytes = 4096;

// kInvalidArgument: "--FLAG: FILE: WHAT".
absl::Status BadSettingFile(absl::string_view flag, absl::string_view path,
                            absl::string_view what);

// All of it.  kInvalidArgument: it can't be read, is no file, or is longer than
// `most` bytes.
absl::StatusOr<std::string> ReadSettingFile(absl::string_view flag,
                                            const std::string& path,
                                            size_t most);

// The one line of a file that holds a secret.  kInvalidArgument as above, and
// where others than its owner and group may read it, or where it is not one
// line of kMinSecretBytes to kMaxSecretBytes visible characters.
absl::StatusOr<std::string> ReadSecretFile(absl::string_view flag,
                                           const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_SETTING_FILE_H_
