#include "server/door/tls_stream.h"

#include <openssl/err.h>

#include <algorithm>
#include <climits>
#include <utility>

namespace roundhouse {
namespace {

// A record's content at most.  A read of less would leave the rest inside
// OpenSSL, where epoll does not see it.
constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;

bool SpeaksHttp2(const SSL* connection) {
  const unsigned char* chosen = nullptr;
  unsigned int bytes = 0;
  SSL_get0_alpn_selected(connection, &chosen, &bytes);
  return absl::string_view(reinterpret_cast<const char*>(chosen), bytes) ==
         "h2";
}

}  // namespace

TlsStream::TlsStream(SslPtr connection, Descriptor socket)
    : socket_(std::move(socket)), connection_(std::move(connection)) {
  usable_ = SSL_set_fd(connection_.get(), socket_.get()) == 1;
}

TlsStream::~TlsStream() {
  if (usable_ && done_) SSL_shutdown(connection_.get());
  ERR_clear_error();
}

bool TlsStream::Waits(int result) {
  const int error = SSL_get_error(connection_.get(), result);
  reads_by_writing_ = error == SSL_ERROR_WANT_WRITE;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    return true;
  }
  // After these, OpenSSL allows nothing more, not even a goodbye.
  if (error == SSL_ERROR_SYSCALL || error == SSL_ERROR_SSL) usable_ = false;
  return false;
}

TlsStream::Handshake TlsStream::Shake() {
  if (!usable_) return Handshake::kFailed;
  ERR_clear_error();
  const int result = SSL_do_handshake(connection_.get());
  if (result == 1) {
    done_ = true;
    return SpeaksHttp2(connection_.get()) ? Handshake::kDone
                                          : Handshake::kFailed;
  }
  if (!Waits(result)) return Handshake::kFailed;
  return std::exchange(reads_by_writing_, false) ? Handshake::kWrites
                                                 : Handshake::kReads;
}

bool TlsStream::Read(char* to, size_t most, size_t* bytes) {
  *bytes = 0;
  while (most - *bytes >= kRecordBytes) {
    size_t n = 0;
    ERR_clear_error();
    const int result =
        SSL_read_ex(connection_.get(), to + *bytes, most - *bytes, &n);
    if (result != 1) return Waits(result) || *bytes > 0;
    reads_by_writing_ = false;
    *bytes += n;
  }
  return true;
}

bool TlsStream::Write(absl::string_view from, size_t* bytes) {
  *bytes = 0;
  if (from.empty()) return true;
  ERR_clear_error();
  const bool before = reads_by_writing_;
  const int result =
      SSL_write_ex(connection_.get(), from.data(), from.size(), bytes);
  const bool goes_on = result == 1 || Waits(result);
  reads_by_writing_ = before;
  return goes_on;
}

}  // namespace roundhouse
