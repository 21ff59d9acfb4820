#include "server/api/http2_frames.h"

#include <algorithm>

namespace roundhouse {

size_t Http2Frames::Follow(absl::string_view bytes,
                           absl::FunctionRef<bool(uint8_t type)> admit) {
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t skipped = std::min(skip_, bytes.size() - at);
    skip_ -= skipped;
    at += skipped;
    const size_t header_at = at;
    const Http2Frames before = *this;
    while (at < bytes.size() && header_bytes_ < kHeaderBytes) {
      const auto byte = static_cast<uint8_t>(bytes[at++]);
      if (header_bytes_ < 3) payload_bytes_ = payload_bytes_ << 8 | byte;
      if (header_bytes_ == 3) type_ = byte;
      ++header_bytes_;
    }
    if (header_bytes_ < kHeaderBytes) return at;
    if (!admit(type_)) {
      *this = before;
      return header_at;
    }
    begun_ = true;
    skip_ = payload_bytes_;
    header_bytes_ = 0;
    payload_bytes_ = 0;
  }
  return at;
}

}  // namespace roundhouse
