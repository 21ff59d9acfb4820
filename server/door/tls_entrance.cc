#include "server/door/tls_entrance.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr int kBacklog = 1024;
// A client whose machine went away is noticed after about two minutes.
constexpr int kKeepAliveIdleSeconds = 60;
constexpr int kKeepAliveSeconds = 20;
constexpr int kKeepAliveProbes = 3;

absl::Status Bad(const HostPort& address, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "--listen-tls: can't listen on ", address.Text(), ": ", what));
}

void Set(int fd, int level, int option, int value) {
  // What the system does not know it does without.
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}

void PrepareClient(int fd) {
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveSeconds);
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
}

absl::StatusOr<Descriptor> Bind(const HostPort& address,
                                const struct addrinfo& to) {
  Descriptor listener(
      socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.get() < 0) return Bad(address, std::strerror(errno));
  Set(listener.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (to.ai_family == AF_INET6) {
    // "[::]" is every address of this machine, of IPv4 too.
    Set(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  }
  if (bind(listener.get(), to.ai_addr, to.ai_addrlen) != 0 ||
      listen(listener.get(), kBacklog) != 0) {
    return Bad(address, std::strerror(errno));
  }
  return listener;
}

uint16_t PortOf(int fd) {
  struct sockaddr_storage bound = {};
  socklen_t bytes = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<struct sockaddr*>(&bound), &bytes) !=
      0) {
    return 0;
  }
  // Both families have the port in the same place.
  struct sockaddr_in v4;
  std::memcpy(&v4, &bound, sizeof(v4));
  return ntohs(v4.sin_port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsEntrance>> TlsEntrance::Listen(
    const HostPort& address, const TlsContext* context, Peers* peers) {
  struct addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  struct addrinfo* found = nullptr;
  const int error = getaddrinfo(
      address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) return Bad(address, gai_strerror(error));
  absl::StatusOr<Descriptor> listener = Bind(address, *found);
  freeaddrinfo(found);
  if (!listener.ok()) return listener.status();
  const HostPort bound{.host = address.host, .port = PortOf(listener->get())};
  return std::unique_ptr<TlsEntrance>(
      new TlsEntrance(*std::move(listener), bound, context, peers));
}

TlsEntrance::~TlsEntrance() {
  for (auto it = handshakes_.begin(); it != handshakes_.end();) it = End(it);
}

absl::Status TlsEntrance::Begin(int epoll, uint64_t key, Descriptor client,
                                const Peer& peer, absl::Time now) {
  const auto others = of_peer_.find(peer);
  const size_t own = others == of_peer_.end() ? 0 : others->second;
  if (own >= kMaxHandshakesEach) {
    return absl::ResourceExhaustedError(
        absl::StrCat(peer.Text(), " has ", kMaxHandshakesEach,
                     " TLS handshakes going on, the most of an address"));
  }
  RETURN_IF_ERROR(peers_->Enter(peer, now));
  SslPtr connection;
  const absl::Status begun = [&]() -> absl::Status {
    if (!peers_->MayBeginHandshake(peer, now)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          peer.Text(), " has begun ", peers_->limits().address_handshakes,
          " TLS handshakes within a second, the most of an address, or all "
          "have begun ",
          peers_->limits().handshakes));
    }
    RETURN_IF_ERROR(MakeRoom(own));
    connection = context_->NewConnection();
    if (connection == nullptr) {
      return absl::ResourceExhaustedError("no memory for a TLS connection");
    }
    struct epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = key;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, client.get(), &event) == 0) {
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError("no memory to watch a connection");
  }();
  if (!begun.ok()) {
    peers_->Leave(peer);
    return begun;
  }
  PrepareClient(client.get());
  handshakes_[key] = {.peer = peer,
                      .stream = std::make_unique<TlsStream>(
                          std::move(connection), std::move(client)),
                      .epoll = epoll,
                      .began = now};
  ++of_peer_[peer];
  return absl::OkStatus();
}

absl::Status TlsEntrance::MakeRoom(size_t own) {
  if (handshakes_.size() < kMaxHandshakes) return absl::OkStatus();
  const auto largest = std::max_element(
      of_peer_.begin(), of_peer_.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  if (largest->second <= own) {
    return absl::ResourceExhaustedError(absl::StrCat(
        kMaxHandshakes, " TLS handshakes are going on, the most in all"));
  }
  // By key, which is by age.
  for (auto it = handshakes_.begin(); it != handshakes_.end(); ++it) {
    if (it->second.peer != largest->first) continue;
    End(it);
    break;
  }
  return absl::OkStatus();
}

TlsEntrance::Handshakes::iterator TlsEntrance::End(
    Handshakes::iterator handshake) {
  const Peer& peer = handshake->second.peer;
  const auto count = of_peer_.find(peer);
  if (--count->second == 0) of_peer_.erase(count);
  // A guest's place is his from now on.
  if (handshake->second.stream != nullptr) peers_->Leave(peer);
  return handshakes_.erase(handshake);
}

std::optional<TlsEntrance::Guest> TlsEntrance::GoOn(uint64_t key) {
  const auto found = handshakes_.find(key);
  if (found == handshakes_.end()) return std::nullopt;
  Handshake& handshake = found->second;
  const TlsStream::Handshake state = handshake.stream->Shake();
  const int fd = handshake.stream->fd();
  if (state == TlsStream::Handshake::kFailed) {
    End(found);
    return std::nullopt;
  }
  if (state == TlsStream::Handshake::kDone) {
    (void)epoll_ctl(handshake.epoll, EPOLL_CTL_DEL, fd, nullptr);
    Guest guest{.peer = handshake.peer, .stream = std::move(handshake.stream)};
    End(found);
    return guest;
  }
  const bool writes = state == TlsStream::Handshake::kWrites;
  if (writes != std::exchange(handshake.writes, writes)) {
    struct epoll_event event = {};
    event.events = writes ? EPOLLOUT : EPOLLIN;
    event.data.u64 = key;
    (void)epoll_ctl(handshake.epoll, EPOLL_CTL_MOD, fd, &event);
  }
  return std::nullopt;
}

void TlsEntrance::EndSlow(absl::Time now) {
  for (auto it = handshakes_.begin(); it != handshakes_.end();) {
    it = now - it->second.began > kHandshakeLimit ? End(it) : std::next(it);
  }
}

}  // namespace roundhouse
