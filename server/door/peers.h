// Who is connected: which user is behind each connection of the API's socket,
// how many each may have, and how fast each may begin calls.
//
// gRPC names a connection that it was given by its descriptor ("fd:7"), and
// keeps the descriptor while a call of it lives; so the name leads to the user.
// A call from a connection that is not noted here is nobody's and is refused.
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_DOOR_PEERS_H_
#define ROUNDHOUSE_SERVER_DOOR_PEERS_H_

#include <sys/types.h>

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
#include "server/door/token_bucket.h"

namespace roundhouse {

struct PeerLimits {
  int connections = 1024;     // in all
  int connections_each = 64;  // of a user
  // For root and the daemon's own user.
  int connections_admin = 256;
  // Calls that a connection, and all of a user's, begin in a second; more have
  // to wait.
  double connection_calls = 500;
  double user_calls = 1000;
  // Calls that a connection resets in a second; one that resets more is closed.
  double connection_resets = 200;
  // Bytes of a user's requests that are not whole yet: gRPC keeps them.  The
  // connection that goes beyond is closed.
  uint64_t user_unfinished_bytes = 8 << 20;
  // Frames of any kind that a connection sends in a second; more have to wait.
  double connection_frames = 10'000;
};

// Descriptors that a connection takes: its own and a pair of ours.
inline constexpr int kDescriptorsOfConnection = 3;

class Peers {
 public:
  explicit Peers(const PeerLimits& limits) : limits_(limits) {}
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  const PeerLimits& limits() const { return limits_; }

  // A connection of `uid` begins.  kResourceExhausted, saying which limit, when
  // it may not.  Each one admitted is given back by Leave.
  absl::Status Enter(uid_t uid, absl::Time now);
  void Leave(uid_t uid);

  // gRPC has the connection as `fd` from now on, until Forget with the same
  // `connection` or another Note of the descriptor.
  void Note(int fd, uid_t uid, uint64_t connection);
  void Forget(int fd, uint64_t connection);

  // Whether a connection of `uid`, which has entered, may begin a call now.
  bool MayBeginCall(uid_t uid, absl::Time now);

  // What a user may have instead of PeerLimits::user_unfinished_bytes, where
  // that is less; nullopt: the constant holds.  Before the first connection.
  void LimitUnfinished(std::function<std::optional<uint64_t>(uid_t)> most) {
    most_unfinished_ = std::move(most);
  }

  // Counts bytes of a request of `uid` that is not whole; false, and they are
  // not counted: too many.  Each one counted is taken back when it is whole.
  bool AddUnfinished(uid_t uid, uint64_t bytes);
  void TakeBackUnfinished(uid_t uid, uint64_t bytes);

  // kUnauthenticated for a name that is not noted.
  absl::StatusOr<uid_t> UidOf(absl::string_view peer) const;
  absl::StatusOr<uid_t> UidOf(const grpc::ServerContextBase& context) const;

  // From where a call comes, in a few words: "unix" for the daemon's socket.
  std::string AddressOf(const grpc::ServerContextBase& context) const;

  // Connections of all users now.
  int connections() const;

 private:
  struct User {
    int connections = 0;
    uint64_t unfinished_bytes = 0;
    TokenBucket calls;
  };
  struct Noted {
    uid_t uid = 0;
    uint64_t connection = 0;
  };

  const PeerLimits limits_;
  std::function<std::optional<uint64_t>(uid_t)> most_unfinished_ = [](uid_t) {
    return std::nullopt;
  };
  mutable Mutex mutex_;
  int connections_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uid_t, User> users_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Noted> noted_ ABSL_GUARDED_BY(mutex_);  // by gRPC's descriptor.
};

// Root and the daemon's own user.
bool IsTrusted(uid_t uid);
// How a user is named where things are stored: "uid:1000".
std::string PrincipalOf(uid_t uid);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOOR_PEERS_H_
