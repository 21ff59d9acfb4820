// Who is behind a connection: a user of this machine, over the Unix socket, or
// an address, over TLS.
//
// A value; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_DOOR_PEER_H_
#define ROUNDHOUSE_SERVER_DOOR_PEER_H_

#include <sys/types.h>

#include <compare>
#include <optional>
#include <string>

struct sockaddr_storage;

namespace roundhouse {

struct Peer {
  Peer() = default;
  // A user is a peer, wherever one is asked for.
  Peer(uid_t user) : uid(user) {}  // NOLINT(google-explicit-constructor)
  // "192.0.2.7" or, of IPv6, the network that one host usually has to itself:
  // "2001:db8:0:1::/64".
  static Peer OfAddress(const std::string& address);
  static Peer OfAddress(const struct sockaddr_storage& address);

  // The holder of a token, for shares that are his from wherever he calls.
  static Peer OfHolder(const std::string& principal);

  std::optional<uid_t> uid;  // nullopt: an address
  std::string address;       // "": a user

  // "user 1000", "address 192.0.2.7"; for messages.
  std::string Text() const;
  auto operator<=>(const Peer&) const = default;
};

// Root and the daemon's own user.
bool IsTrusted(uid_t uid);
// How a user is named where things are stored: "uid:1000".
std::string PrincipalOf(uid_t uid);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOOR_PEER_H_
