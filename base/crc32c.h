// CRC-32C (Castagnoli; RFC 3720, appendix B.4), which goes with each chunk of
// a file over the wire.
//
// It is ours because no library that is linked has one: Debian's Abseil is of
// before absl::crc32c_t, and no other comes with a static library, which the
// movable client takes.  It uses the processor's instruction where there is
// one, and a table else.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_BASE_CRC32C_H_
#define ROUNDHOUSE_BASE_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace roundhouse {

uint32_t Crc32c(absl::string_view bytes);
// Without the instruction, for tests.
uint32_t Crc32cByTable(absl::string_view bytes);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_CRC32C_H_
