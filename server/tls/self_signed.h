// The key and certificate that the daemon makes for itself where it is given
// none: ECDSA on P-256, ten years, for all names of this machine.
//
// Clients remember its fingerprint, as ssh does a host's, so they are made once
// and stay.
#ifndef ROUNDHOUSE_SERVER_TLS_SELF_SIGNED_H_
#define ROUNDHOUSE_SERVER_TLS_SELF_SIGNED_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/tls/tls_context.h"

namespace roundhouse {

struct SelfSignedFiles {
  std::string certificate;
  std::string key;  // 0600
};

// The two in the folder `tls` of `state_dir`, made durably where they are not
// there; the certificate is made anew for a key that has none.  Errors of
// durable_file.h.  Blocking.
absl::StatusOr<SelfSignedFiles> EnsureSelfSigned(const std::string& state_dir,
                                                 absl::Time now);

// What TLS clients are answered with: `given` or, where it names no
// certificate, those two.  Files that change are taken up by themselves.
absl::StatusOr<std::unique_ptr<TlsContext>> OpenTls(
    const std::string& state_dir, const TlsFiles& given);

// Host name, "localhost", and the addresses of its interfaces, as
// "DNS:x,IP:y".
std::string NamesOfThisMachine();

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_TLS_SELF_SIGNED_H_
