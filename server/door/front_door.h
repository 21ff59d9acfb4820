// The API's Unix socket and, if an admin asks for it, a TLS port: listens, sees
// who connects, and passes bytes on to gRPC over a pair of sockets, as many
// calls a second as Peers allows.
//
// gRPC reads whatever comes as fast as it comes and keeps 20 kB for each call
// that begins, also for one that is reset at once; so what may not go on waits
// here, where the client's own socket buffer fills, or ends the connection.
//
//   client <-> FrontDoor (ends TLS, counts frames) <-> pair <-> gRPC
//
// One thread does all of it.  Listen, ListenTls, Start, StopAccepting and Stop
// are called from one other thread, in this order.
#ifndef ROUNDHOUSE_SERVER_DOOR_FRONT_DOOR_H_
#define ROUNDHOUSE_SERVER_DOOR_FRONT_DOOR_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/files/descriptor.h"
#include "base/host_port.h"
#include "server/door/byte_stream.h"
#include "server/door/peers.h"
#include "server/door/relay.h"
#include "server/door/tls_entrance.h"
#include "server/tls/tls_context.h"

struct sockaddr_storage;

namespace roundhouse {

// sockaddr_un holds 108 bytes with the last one zero.
inline constexpr size_t kMaxSocketPathBytes = 107;
// The socket's folder decides who gets in.
inline constexpr mode_t kSocketMode = 0660;
// The mode of the folder where the daemon makes it: its group gets in.
inline constexpr mode_t kSocketFolderMode = 0750;

class FrontDoor {
 public:
  // Gets a connected, non-blocking socket, which it owns from then on.
  using Serve = std::function<void(int fd)>;

  // Listens on `path`, where a socket that nobody listens on is replaced.  Its
  // folder, but none above, is made where it is not there; in a folder where
  // anybody may make files it has to be this user's own.
  // kAlreadyExists when another server listens there, or when something else
  // has the name; kInvalidArgument when it can't be bound.  `peers`
  // and `clock` outlive the door.
  static absl::StatusOr<std::unique_ptr<FrontDoor>> Listen(
      const std::string& path, Peers* peers,
      const Clock& clock = SystemClock());
  // Stop().
  ~FrontDoor();
  FrontDoor(const FrontDoor&) = delete;
  FrontDoor& operator=(const FrontDoor&) = delete;

  // Listens on a TCP port too, for TLS alone; `context` outlives the door.
  // kInvalidArgument names the flag.
  absl::Status ListenTls(const HostPort& address, const TlsContext* context);
  // With the port that it is; nullopt: no TLS.
  std::optional<HostPort> tls_address() const;

  // Clients that connected since Listen are let in now.
  void Start(Serve serve);
  // Nobody is given to `serve` after it returns; connections go on.  The
  // socket's file is gone.
  void StopAccepting();
  // Ends every connection and the thread.
  void Stop();

 private:
  FrontDoor(std::string path, Peers* peers, const Clock& clock);
  absl::Status Bind();
  void Loop();
  void HandleEvent(uint64_t key, uint32_t events, absl::Time now);
  // What waits for time to pass.
  void Tick(absl::Time now);
  void Accept(int listener, absl::Time now);
  void LetIn(Descriptor client, absl::Time now);
  void ShakeHands(Descriptor client, const struct sockaddr_storage& address,
                  absl::Time now);
  // `peer` has entered; he leaves where there are no descriptors for him.
  void BeginRelay(uint64_t connection, const Peer& peer,
                  std::unique_ptr<ByteStream> client, absl::Time now);
  void OutOfDescriptors(int listener, absl::Time now);
  void Warn(const std::string& text, absl::Time now);
  // The sockets that listen.
  void WatchListeners();
  void IgnoreListeners();
  void Wake();

  const std::string path_;
  Peers* const peers_;
  const Clock& clock_;
  Serve serve_;
  Descriptor listener_;
  std::unique_ptr<TlsEntrance> tls_;  // null: none
  uint64_t socket_file_ = 0;          // inode
  Descriptor epoll_;
  Descriptor wake_;   // eventfd
  Descriptor spare_;  // given up to refuse somebody when there is no other
  std::atomic<bool> stop_accepting_ = false;
  std::atomic<bool> stop_ = false;
  absl::Notification accepting_stopped_;
  // All below: of the thread.
  bool listening_ = false;
  absl::Time accept_again_ = absl::InfinitePast();
  absl::Time next_check_ = absl::InfinitePast();
  std::set<uint64_t> waiting_;  // connections whose bytes may not go on yet
  absl::Time next_warning_ = absl::InfinitePast();
  uint64_t next_connection_;
  std::map<uint64_t, std::unique_ptr<Relay>> relays_;  // by connection
  std::thread thread_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOOR_FRONT_DOOR_H_
