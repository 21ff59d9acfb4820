// Which server to talk to.  In this order: the --server flag, the variable
// ROUNDHOUSE_SERVER, key `server` of the config file, the last login, that of
// the machine's config file, the default socket.
//
//   config file   $XDG_CONFIG_HOME/roundhouse/config, else
//                 $HOME/.config/roundhouse/config; lines "key: value",
//                 empty lines, and comments from a # at the start of a line;
//                 keys are server, client-certificate and client-key
//   login         the server of the last roundhouse login (tls/logins.h)
//   the machine's /etc/roundhouse/client.conf, in the same form
//   default       unix:$XDG_RUNTIME_DIR/roundhouse/roundhoused.sock; where
//                 there is no XDG_RUNTIME_DIR,
//                 unix:/tmp/roundhouse-<uid>/roundhoused.sock
//
// Pure but for reading the config file; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_SERVER_ADDRESS_H_
#define ROUNDHOUSE_CLIENT_SERVER_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/environment.h"

namespace roundhouse::client {

// A Unix socket's path has 107 bytes at most.
inline constexpr size_t kMaxSocketPathBytes = 107;
inline constexpr size_t kMaxConfigFileBytes = 64 * 1024;
// For everybody on this machine; deploy/install-service writes it.
inline constexpr char kSystemConfigPath[] = "/etc/roundhouse/client.conf";

// How to reach a server over the network, and as whom.
struct TlsAccess {
  std::string server;       // "HOST:PORT"; "": it is a Unix socket
  std::string fingerprint;  // "": `roots` vouch for it
  std::string roots;        // PEM
  std::string token;        // "": none
  // What the client shows where the server asks for a certificate, PEM; "":
  // nothing.
  std::string certificate;
  std::string key;
};

struct ServerAddress {
  // "unix:PATH" or "tls:HOST:PORT".
  std::string target;
  // For messages: "--server", "ROUNDHOUSE_SERVER", "FILE:LINE", "login" or
  // "default".
  std::string source;
  TlsAccess tls = {};
};

inline constexpr char kTlsScheme[] = "tls:";

// The file that tls/logins.h is about; "": there is no home.
std::string LoginsPath(const Environment& environment);

// "tls:HOST:PORT" or "HOST:PORT" with all that is known of that server but its
// login.  kInvalidArgument.
absl::StatusOr<ServerAddress> TlsServer(const std::string& address,
                                        const Environment& environment);

// `flag` "" means not given.  kInvalidArgument names the source, the value and
// the rule it breaks.
absl::StatusOr<ServerAddress> FindServer(
    const std::string& flag, const Environment& environment,
    const std::string& system_config = kSystemConfigPath);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_SERVER_ADDRESS_H_
