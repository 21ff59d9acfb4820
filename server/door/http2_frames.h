// Where the frames begin in what an HTTP/2 client sends (RFC 9113, sections
// 3.4 and 4.1), so that calls are counted before gRPC spends memory on them.
//
// Payloads are not looked at; whether they make sense is gRPC's affair.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_DOOR_HTTP2_FRAMES_H_
#define ROUNDHOUSE_SERVER_DOOR_HTTP2_FRAMES_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace roundhouse {

inline constexpr uint8_t kDataFrame = 0;
inline constexpr uint8_t kHeadersFrame = 1;  // begins a call
inline constexpr uint8_t kResetFrame = 3;    // RST_STREAM: gives one up
inline constexpr uint8_t kEndStream = 1;     // flag: the request is whole

// A frame's header.
struct Http2Frame {
  uint32_t payload_bytes = 0;
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t stream = 0;
};

class Http2Frames {
 public:
  // Follows `bytes`, the next ones of the connection, and asks `admit` about
  // each frame whose header is complete.  Answers how many bytes may go
  // on: all, or those before the frame that was not admitted; what is left is
  // given again, with more behind it or not.
  size_t Follow(absl::string_view bytes,
                absl::FunctionRef<bool(const Http2Frame&)> admit);

  // Whether the client has begun a frame: one that says nothing has not.
  bool begun() const { return begun_; }

 private:
  static constexpr size_t kPrefaceBytes = 24;
  static constexpr size_t kHeaderBytes = 9;

  size_t skip_ = kPrefaceBytes;  // bytes until the next frame header
  size_t header_bytes_ = 0;      // of the header that is not complete
  Http2Frame frame_;             // as far as that header has said it
  bool begun_ = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOOR_HTTP2_FRAMES_H_
