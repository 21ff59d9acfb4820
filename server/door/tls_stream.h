// A TLS connection as bytes (byte_stream.h), once its handshake is done.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_DOOR_TLS_STREAM_H_
#define ROUNDHOUSE_SERVER_DOOR_TLS_STREAM_H_

#include "absl/strings/string_view.h"
#include "base/files/descriptor.h"
#include "server/door/byte_stream.h"
#include "server/tls/ssl.h"

namespace roundhouse {

class TlsStream final : public ByteStream {
 public:
  enum class Handshake { kReads, kWrites, kDone, kFailed };

  // `connection` is a server's (TlsContext).
  TlsStream(SslPtr connection, Descriptor socket);
  // Tells the other side, if the socket takes it.
  ~TlsStream() override;

  // Goes on with the handshake; kReads, kWrites: as soon as the socket can.
  // kDone, once: the two speak HTTP/2.
  Handshake Shake();

  // REQUIRES: the handshake is done.
  int fd() const override { return socket_.get(); }
  bool Read(char* to, size_t most, size_t* bytes) override;
  bool Write(absl::string_view from, size_t* bytes) override;
  bool reads_by_writing() const override { return reads_by_writing_; }

 private:
  // Whether `result` of a call says no more than that the socket isn't ready.
  bool Waits(int result);

  const Descriptor socket_;
  const SslPtr connection_;
  bool usable_ = true;  // no error has come
  bool done_ = false;   // the handshake
  bool reads_by_writing_ = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOOR_TLS_STREAM_H_
