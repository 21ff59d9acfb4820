// One end of a connection, as bytes: a socket as it is, or what TLS makes of
// one (tls_stream.h).  Non-blocking.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_DOOR_BYTE_STREAM_H_
#define ROUNDHOUSE_SERVER_DOOR_BYTE_STREAM_H_

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/files/descriptor.h"

namespace roundhouse {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // What epoll watches.  After Read has given less than was asked for, epoll
  // says when there is more.
  virtual int fd() const = 0;
  // At most `most` bytes, of which there are `*bytes` now.  False: the other
  // side is gone, and there are none.
  virtual bool Read(char* to, size_t most, size_t* bytes) = 0;
  // As many as it takes now.  False: the other side is gone.  What was not
  // taken is given again, with the same bytes or more behind it.
  virtual bool Write(absl::string_view from, size_t* bytes) = 0;
  // Whether the next Read needs a socket that takes bytes.
  virtual bool reads_by_writing() const { return false; }
};

// A socket that somebody else closes.
class PlainStream : public ByteStream {
 public:
  explicit PlainStream(int fd) : fd_(fd) {}
  int fd() const override { return fd_; }
  bool Read(char* to, size_t most, size_t* bytes) override {
    const ssize_t n = recv(fd_, to, most, 0);
    *bytes = n > 0 ? static_cast<size_t>(n) : 0;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  }
  bool Write(absl::string_view from, size_t* bytes) override {
    const ssize_t n = send(fd_, from.data(), from.size(), MSG_NOSIGNAL);
    *bytes = n > 0 ? static_cast<size_t>(n) : 0;
    return n >= 0 || errno == EAGAIN || errno == EINTR;
  }

 private:
  const int fd_;
};

// One that it closes.
class OwnedStream final : public PlainStream {
 public:
  explicit OwnedStream(Descriptor socket)
      : PlainStream(socket.get()), socket_(std::move(socket)) {}

 private:
  const Descriptor socket_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOOR_BYTE_STREAM_H_
