#include "server/door/http2_frames.h"

#include <algorithm>

namespace roundhouse {

size_t Http2Frames::Follow(absl::string_view bytes,
                           absl::FunctionRef<bool(const Http2Frame&)> admit) {
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t skipped = std::min(skip_, bytes.size() - at);
    skip_ -= skipped;
    at += skipped;
    const size_t header_at = at;
    const Http2Frames before = *this;
    while (at < bytes.size() && header_bytes_ < kHeaderBytes) {
      const auto byte = static_cast<uint8_t>(bytes[at++]);
      if (header_bytes_ < 3) {
        frame_.payload_bytes = frame_.payload_bytes << 8 | byte;
      } else if (header_bytes_ == 3) {
        frame_.type = byte;
      } else if (header_bytes_ == 4) {
        frame_.flags = byte;
      } else {
        frame_.stream = frame_.stream << 8 | byte;
      }
      ++header_bytes_;
    }
    if (header_bytes_ < kHeaderBytes) return at;
    if (!admit(frame_)) {
      *this = before;
      return header_at;
    }
    begun_ = true;
    skip_ = frame_.payload_bytes;
    header_bytes_ = 0;
    frame_ = {};
  }
  return at;
}

}  // namespace roundhouse
