// The head of an HTTP/1 request (RFC 9112), as far as a server of a few pages
// needs it.  What is not exactly such a head is refused, not guessed at.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_HTTP_REQUEST_H_
#define ROUNDHOUSE_SERVER_OBSERVE_HTTP_REQUEST_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace roundhouse {

// Request line and header fields; browsers send some 1 kB.
inline constexpr size_t kMaxHttpHeadBytes = 16 << 10;

struct HttpRequest {
  std::string method;
  std::string path;  // without a query, as it was sent
  std::string host;  // "": none was given
  bool accepts_gzip = false;
  // What Authorization shows: a bearer's token, or a password whatever the
  // name; "": neither.
  std::string secret;
};

// nullopt: `received` is the beginning of a head.  kInvalidArgument for what is
// none, kResourceExhausted for one that is too long.
absl::StatusOr<std::optional<HttpRequest>> ParseHttpRequest(
    absl::string_view received);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_HTTP_REQUEST_H_
