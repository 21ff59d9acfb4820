// What `roundhouse login` remembers: servers, their certificates' fingerprints
// and the tokens for them, in one file that nobody else may read.
//
//   $XDG_CONFIG_HOME/roundhouse/logins, else $HOME/.config/roundhouse/logins
//   # Written by roundhouse login ...
//   lab.example.org:7443 SHA256:1f2e... rh_...
//
// The first with a token is where commands go by default.  "ca" in place of a
// fingerprint: the certificate is one that this machine's own authorities vouch
// for.  "-" in place of a token: none.
//
// Blocking where files are read and written; thread-compatible.
#ifndef ROUNDHOUSE_CLIENT_TLS_LOGINS_H_
#define ROUNDHOUSE_CLIENT_TLS_LOGINS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roundhouse::client {

inline constexpr size_t kMaxLoginsBytes = 64 << 10;
inline constexpr size_t kMaxLogins = 100;

struct Login {
  std::string server;       // "HOST:PORT"
  std::string fingerprint;  // "SHA256:..."; "": a known authority vouches
  std::string token;        // "": none

  bool operator==(const Login&) const = default;
};

using Logins = std::vector<Login>;

// nullptr: none.
const Login* LoginOf(const Logins& logins, const std::string& server);
// Where commands go; nullptr: nowhere.
const Login* CurrentLogin(const Logins& logins);
// In place of what there was of its server, and the current one from now on.
void PutLogin(const Login& login, Logins* logins);

// kInvalidArgument names file and line, never what a token's place holds.
absl::StatusOr<Logins> ParseLogins(const std::string& path,
                                   const std::string& text);
std::string LoginsText(const Logins& logins);

// Empty where there is no file.  kInvalidArgument too when others may read it.
absl::StatusOr<Logins> ReadLogins(const std::string& path);
// With the folder that it lies in; whole or not at all.
absl::Status WriteLogins(const std::string& path, const Logins& logins);

// Whether it is "SHA256:" and 43 characters of base64.
bool IsFingerprint(const std::string& text);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TLS_LOGINS_H_
