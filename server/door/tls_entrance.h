// The network's side of the front door: a TCP socket that listens, and the TLS
// handshakes of those who came, each with a limit of time, and all with one of
// number.  Where it is reached, whoever has the most of them loses the oldest.
//
// Thread-compatible; but for Listen, all calls from the front door's thread.
#ifndef ROUNDHOUSE_SERVER_DOOR_TLS_ENTRANCE_H_
#define ROUNDHOUSE_SERVER_DOOR_TLS_ENTRANCE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/files/descriptor.h"
#include "base/host_port.h"
#include "server/door/byte_stream.h"
#include "server/door/peers.h"
#include "server/door/tls_stream.h"
#include "server/tls/tls_context.h"

namespace roundhouse {

// Handshakes at a time, in all and of an address, and how long one may take.
inline constexpr size_t kMaxHandshakes = 128;
inline constexpr size_t kMaxHandshakesEach = 32;
inline constexpr absl::Duration kHandshakeLimit = absl::Seconds(10);

class TlsEntrance {
 public:
  // Somebody who has been let in.
  struct Guest {
    Peer peer;
    std::unique_ptr<ByteStream> stream;
  };

  // Listens on `address`; port 0: on any.  kInvalidArgument names the flag.
  // `context` and `peers` outlive it.
  static absl::StatusOr<std::unique_ptr<TlsEntrance>> Listen(
      const HostPort& address, const TlsContext* context, Peers* peers);
  // Whoever is still shaking hands leaves.
  ~TlsEntrance();
  TlsEntrance(const TlsEntrance&) = delete;
  TlsEntrance& operator=(const TlsEntrance&) = delete;

  // The socket, until StopListening; -1 then.
  int listener() const { return listener_.get(); }
  void StopListening() { listener_ = Descriptor(); }
  // With the port that it is.
  const HostPort& address() const { return address_; }

  // Begins the handshake of somebody who was accepted and registers him with
  // `epoll` as `key`.  kResourceExhausted says which limit he is over.
  absl::Status Begin(int epoll, uint64_t key, Descriptor client,
                     const Peer& peer, absl::Time now);
  // Whether `key` is somebody's who shakes hands.
  bool Has(uint64_t key) const { return handshakes_.contains(key); }
  // Goes on.  Once it is done, the guest, who has entered and is not any more
  // in the epoll; after a failure nothing is left of him.
  std::optional<Guest> GoOn(uint64_t key);
  // Ends those that take too long.
  void EndSlow(absl::Time now);

 private:
  struct Handshake {
    Peer peer;
    std::unique_ptr<TlsStream> stream;
    int epoll = -1;
    absl::Time began;
    bool writes = false;  // what epoll watches
  };
  using Handshakes = std::map<uint64_t, Handshake>;

  TlsEntrance(Descriptor listener, const HostPort& address,
              const TlsContext* context, Peers* peers)
      : listener_(std::move(listener)),
        address_(address),
        context_(context),
        peers_(peers) {}
  // Makes room for a handshake of somebody who has `own` going on.
  absl::Status MakeRoom(size_t own);
  Handshakes::iterator End(Handshakes::iterator handshake);

  Descriptor listener_;
  const HostPort address_;
  const TlsContext* const context_;
  Peers* const peers_;
  Handshakes handshakes_;
  std::map<Peer, size_t> of_peer_;  // handshakes of each
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOOR_TLS_ENTRANCE_H_
