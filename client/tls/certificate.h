// The certificates of servers: what one shows, and whether it is the one that
// is remembered or one that this machine's authorities vouch for.
#ifndef ROUNDHOUSE_CLIENT_TLS_CERTIFICATE_H_
#define ROUNDHOUSE_CLIENT_TLS_CERTIFICATE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/host_port.h"
#include "client/environment.h"

namespace roundhouse::client {

inline constexpr absl::Duration kCertificateLimit = absl::Seconds(10);

struct ShownCertificate {
  std::string fingerprint;  // "SHA256:..."
  bool vouched_for = false;
  // Why it is not: "self-signed certificate".
  std::string reason;
};

// Connects, shakes hands and leaves again, without sending anything that is
// anybody's.  kUnavailable says why that does not come about.  Blocking, for
// kCertificateLimit at most and what the resolver takes.
absl::StatusOr<ShownCertificate> AskCertificate(const HostPort& server,
                                                const std::string& roots);

// The authorities that this machine trusts, PEM: of the file that SSL_CERT_FILE
// names, else of the system.  "": none.
std::string TrustedRoots(const Environment& environment);

// The first certificate of a PEM text is meant; "": there is none.
std::string FingerprintOfPem(absl::string_view pem);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TLS_CERTIFICATE_H_
