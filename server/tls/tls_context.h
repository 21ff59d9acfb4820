// What the daemon answers TLS clients with: certificate and key from files,
// TLS 1.3 and 1.2 with ECDHE and AEAD ciphers only, HTTP/2 by ALPN.
//
// The files are looked at again every second, so that a renewed certificate is
// taken up without a restart.  What does not fit together is refused with a
// warning, and the one before stays.
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_TLS_TLS_CONTEXT_H_
#define ROUNDHOUSE_SERVER_TLS_TLS_CONTEXT_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/tls/ssl.h"

namespace roundhouse {

// What an admin hears of a certificate that ends within this.
inline constexpr absl::Duration kExpiryWarning = absl::Hours(24 * 30);
inline constexpr absl::Duration kFilesInterval = absl::Seconds(1);
// How often those that could not be taken up, and have not changed since.
inline constexpr absl::Duration kFailedFilesInterval = absl::Minutes(1);
inline constexpr size_t kMaxTlsFileBytes = 1 << 20;

struct TlsFiles {
  std::string certificate;  // PEM: the server's, then those above it
  std::string key;          // PEM, without a password
  std::string client_ca;    // PEM; "": clients need no certificate
};

class TlsContext {
 public:
  // kInvalidArgument names the flag, the file and what is wrong with it.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Load(
      const TlsFiles& files, const Clock& clock = SystemClock());
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // For a new connection, which is the server's side; null without memory.
  SslPtr NewConnection() const;
  // "SHA256:..." of the certificate that is used now.
  std::string fingerprint() const;
  // Looks at the files now; answers whether others are used from now on.  An
  // error says why not, and was not told before.  Blocking.
  absl::StatusOr<bool> LookAgain();
  // Looks every kFilesInterval, on a thread of its own, and logs.
  void KeepLooking();

 private:
  struct Loaded {
    std::shared_ptr<SSL_CTX> context;
    std::string fingerprint;
    absl::Time expires;
  };
  // What changes with a file.
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;
    int64_t bytes = 0;
    int64_t changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };

  TlsContext(const TlsFiles& files, const Clock& clock)
      : files_(files), clock_(clock) {}
  static absl::StatusOr<Loaded> LoadFiles(const TlsFiles& files);
  std::vector<Stamp> Stamps() const;
  void Loop();

  const TlsFiles files_;
  const Clock& clock_;
  Mutex look_mutex_;
  std::vector<Stamp> stamps_ ABSL_GUARDED_BY(look_mutex_);
  absl::Time warned_ ABSL_GUARDED_BY(look_mutex_) = absl::InfinitePast();
  // After a failure; else only what has changed is looked at.
  absl::Time look_again_at_ ABSL_GUARDED_BY(look_mutex_) =
      absl::InfiniteFuture();
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(look_mutex_);
  Loaded loaded_ ABSL_GUARDED_BY(mutex_);
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_TLS_TLS_CONTEXT_H_
