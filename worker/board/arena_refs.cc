#include "worker/board/arena_refs.h"

#include "absl/strings/str_cat.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

absl::Status CheckBuffer(uint64_t arena_bytes, const wire::BufferRef& buffer,
                         uint64_t want, const std::string& name) {
  if (buffer.bytes != want) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " has ", buffer.bytes, " bytes, its shape needs ", want));
  }
  if (buffer.offset == 0 || buffer.offset % kDeviceAlignBytes != 0 ||
      buffer.offset > arena_bytes ||
      buffer.bytes > arena_bytes - buffer.offset) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " at ", buffer.offset, ", ", buffer.bytes,
        " bytes, is not a buffer of the arena of ", arena_bytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status CheckWord(uint64_t arena_bytes, const wire::WordRef& word,
                       const std::string& name) {
  if (word.offset % alignof(wire::Word) != 0 || word.offset > arena_bytes ||
      arena_bytes - word.offset < sizeof(wire::Word)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " at ", word.offset,
                     " is not a word of the arena "
                     "of ",
                     arena_bytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace roundhouse::worker
