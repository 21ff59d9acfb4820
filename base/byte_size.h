// Bytes as people write them on a command line.
#ifndef ROUNDHOUSE_BASE_BYTE_SIZE_H_
#define ROUNDHOUSE_BASE_BYTE_SIZE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace roundhouse {

// "800GiB", "1.5TB", "1000000".  kInvalidArgument says what is expected.
// Pure; thread-safe.
absl::StatusOr<int64_t> ParseByteSize(const std::string& text);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_BYTE_SIZE_H_
