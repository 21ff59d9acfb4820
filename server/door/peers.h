// Who is connected: which user or address (peer.h) is behind each connection of
// the API, how many each may have, and how fast each may begin calls.
//
// gRPC names a connection that it was given by its descriptor ("fd:7"), and
// keeps the descriptor while a call of it lives; so the name leads to the peer.
// A call from a connection that is not noted here is nobody's and is refused.
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_DOOR_PEERS_H_
#define ROUNDHOUSE_SERVER_DOOR_PEERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "server/door/peer.h"
#include "server/door/token_bucket.h"

namespace roundhouse {

struct PeerLimits {
  // In all.  Addresses together leave a quarter of it to users of this
  // machine, and these a 16th to root and the daemon's own user: 1,000 clients
  // have room either way (R6 of docs/reliability.md).
  int connections = 1536;
  int connections_each = 64;  // of a user
  // For root and the daemon's own user.
  int connections_admin = 256;
  // For an address, from which a whole lab may come.
  int connections_address = 256;
  // Calls that a connection, and all of a user's or an address', begin in a
  // second; more have to wait.
  double connection_calls = 500;
  double user_calls = 1000;
  // Calls that a connection resets in a second; one that resets more is closed.
  double connection_resets = 200;
  // Bytes of a user's requests that are not whole yet: gRPC keeps them.  The
  // connection that goes beyond is closed.
  uint64_t user_unfinished_bytes = 8 << 20;
  uint64_t address_unfinished_bytes = 16 << 20;
  // All addresses together have half of what gRPC may keep (api_server.cc).
  uint64_t network_unfinished_bytes = 32 << 20;
  // Frames of any kind that a connection sends in a second; more have to wait.
  // DATA frames of kLargeFrameBytes or more are not among them.
  double connection_frames = 10'000;
  // TLS handshakes that an address begins in a second; more are refused.
  double address_handshakes = 50;
  // And all together.
  double handshakes = 200;
};

// A DATA frame of as many bytes carries a request that is large, not many.
inline constexpr uint32_t kLargeFrameBytes = 8 << 10;

// The parts of all connections that are kept, as 1/n of them.
inline constexpr int kLocalConnectionsPart = 4;
inline constexpr int kTrustedConnectionsPart = 16;

// Whoever left is remembered while he has used up some of his share, so that
// nobody gets a new one by coming back.  Beyond this many, the others are
// forgotten.
inline constexpr size_t kMaxSharesKept = 1024;
inline constexpr absl::Duration kForgetInterval = absl::Seconds(1);

// Descriptors that a connection takes: its own and a pair of ours.
inline constexpr int kDescriptorsOfConnection = 3;

class Peers {
 public:
  explicit Peers(const PeerLimits& limits);
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  const PeerLimits& limits() const { return limits_; }

  // A connection of `peer` begins.  kResourceExhausted, saying which limit,
  // when it may not.  Each one admitted is given back by Leave.
  absl::Status Enter(const Peer& peer, absl::Time now);
  void Leave(const Peer& peer);

  // gRPC has the connection as `fd` from now on, until Forget with the same
  // `connection` or another Note of the descriptor.
  void Note(int fd, const Peer& peer, uint64_t connection);
  void Forget(int fd, uint64_t connection);

  // A call over the connection showed a token that works.
  void NoteToken(absl::string_view connection);
  // Whether the connection makes room for others: it is an address', no token
  // came over it, and addresses have more than half of what they may.
  bool GivesWay(int fd, uint64_t connection) const;

  // Whether a connection of `peer`, which has entered, may begin a call now, or
  // a TLS handshake.
  bool MayBeginCall(const Peer& peer, absl::Time now);
  bool MayBeginHandshake(const Peer& peer, absl::Time now);

  // What a user may have instead of PeerLimits::user_unfinished_bytes, where
  // that is less; nullopt: the constant holds.  Before the first connection.
  void LimitUnfinished(std::function<std::optional<uint64_t>(uid_t)> most) {
    most_unfinished_ = std::move(most);
  }

  // Counts bytes of a request of `peer` that is not whole; false, and they are
  // not counted: too many.  Each one counted is taken back when it is whole.
  bool AddUnfinished(const Peer& peer, uint64_t bytes);
  void TakeBackUnfinished(const Peer& peer, uint64_t bytes);

  // kUnauthenticated for a name that is not noted.
  absl::StatusOr<Peer> PeerOf(absl::string_view connection) const;
  absl::StatusOr<Peer> PeerOf(const grpc::ServerContextBase& context) const;

  // From where a call comes, in a few words: "unix" for the daemon's socket,
  // else the address.
  std::string AddressOf(const grpc::ServerContextBase& context) const;

  // Connections of all peers now.
  int connections() const;
  // Peers that something is kept of.
  size_t shares() const;

 private:
  struct Share {
    int connections = 0;
    uint64_t unfinished_bytes = 0;
    TokenBucket calls;
    TokenBucket handshakes;
  };
  struct Noted {
    Peer peer;
    uint64_t connection = 0;
    bool token = false;  // one that works was shown
  };

  int MostConnections(const Peer& peer) const;
  // Forgets whom nothing is held against any more, where there are many.
  void ForgetIdle(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The most connections that addresses may have.
  int MostOfAddresses() const;
  // Whether there is room for one more of his kind.
  absl::Status CheckRoom(const Peer& peer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const PeerLimits limits_;
  std::function<std::optional<uint64_t>(uid_t)> most_unfinished_ = [](uid_t) {
    return std::nullopt;
  };
  mutable Mutex mutex_;
  int connections_ ABSL_GUARDED_BY(mutex_) = 0;
  int of_addresses_ ABSL_GUARDED_BY(mutex_) = 0;  // part of connections_
  // What is not whole of requests of addresses.
  uint64_t network_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  TokenBucket handshakes_ ABSL_GUARDED_BY(mutex_);
  std::map<Peer, Share> shares_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_forgetting_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::map<int, Noted> noted_ ABSL_GUARDED_BY(mutex_);  // by gRPC's descriptor.
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOOR_PEERS_H_
