// GET requests to the hub, as what fetches models sees them: CurlSource makes
// them, tests answer them.
#ifndef ROUNDHOUSE_SERVER_HUB_WEB_SOURCE_H_
#define ROUNDHOUSE_SERVER_HUB_WEB_SOURCE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace roundhouse {

struct WebRequest {
  std::string url;
  uint64_t from = 0;  // bytes from there on
  // For an answer with its body, and as long again for each one that it leads
  // to.
  absl::Duration limit = absl::InfiniteDuration();
};

// What an answer says before its body.
struct WebHead {
  int status = 0;  // of HTTP: 200
  // Where in the whole the body begins, and how long the whole is, if the
  // answer says so.
  uint64_t begin = 0;
  std::optional<uint64_t> total;
  // How long to wait before the next request; zero: it does not say.
  absl::Duration retry_after;
};

// "bytes 10-99/100" of a 206 into `begin` and `total`; false: it is none.
// Pure.
bool ReadContentRange(absl::string_view text, WebHead* head);

// Gets the body of a 2xx, piece by piece; an error ends the transfer.
using WebSink = std::function<absl::Status(const WebHead&, absl::string_view)>;

class WebSource {
 public:
  virtual ~WebSource() = default;

  // One request and what it leads to.  The answer may begin elsewhere, and says
  // where.  An answer of any status is OK.  kUnavailable: the connection failed
  // or broke, or the limit is over; kCancelled: told to stop;
  // kFailedPrecondition: it leads where it must not, or has no certificate that
  // is trusted; else the sink's errors.  Blocking.
  virtual absl::StatusOr<WebHead> Get(const WebRequest& request,
                                      const WebSink& sink) = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_HUB_WEB_SOURCE_H_
