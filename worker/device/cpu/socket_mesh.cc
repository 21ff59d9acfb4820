#include "worker/device/cpu/socket_mesh.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"

namespace roundhouse::worker {
namespace {

// Between two looks at `given_up`, and at who listens by now.
constexpr int kRetryMs = 2;
// Callers that have not said who they are; the oldest makes room.
constexpr size_t kMaxCallers = kMaxPeers;
constexpr size_t kNameBytes = 16;  // of the id; the rest is secret

// The first that a caller says.
struct Hello {
  char magic[8] = {'r', 'h', 'p', 'e', 'e', 'r', '0', '1'};
  int32_t rank = 0;
  int32_t size = 0;
  std::array<char, sizeof(PeerGroupId) - kNameBytes> secret = {};
};

Hello HelloOf(const PeerGroupId& id, int rank, int size) {
  Hello hello{.rank = rank, .size = size};
  std::copy(id.begin() + kNameBytes, id.end(), hello.secret.begin());
  return hello;
}

struct Address {
  sockaddr_un address = {};
  socklen_t bytes = 0;
};

Address AddressOf(const PeerGroupId& id, int rank) {
  const std::string name = PeerSocketName(id, rank);
  Address made;
  made.address.sun_family = AF_UNIX;
  // After a zero byte: abstract, so that a killed member leaves no file.
  name.copy(made.address.sun_path + 1, sizeof(made.address.sun_path) - 1);
  made.bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return made;
}

Descriptor NewSocket() {
  return Descriptor(
      socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool IsOurs(const Descriptor& socket) {
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) ==
             0 &&
         peer.uid == geteuid();
}

// Somebody who called, and how much of a Hello came.
struct Caller {
  Descriptor socket;
  Hello hello;
  size_t got = 0;
};

// A member that joins.
class Mesh {
 public:
  Mesh(const PeerGroupId& id, int rank, int size)
      : id_(id), rank_(rank), size_(size), sockets_(size) {}

  absl::Status Listen() {
    listener_ = NewSocket();
    const Address own = AddressOf(id_, rank_);
    if (listener_.get() < 0 ||
        bind(listener_.get(), reinterpret_cast<const sockaddr*>(&own.address),
             own.bytes) != 0 ||
        listen(listener_.get(), kMaxPeers) != 0) {
      return absl::UnavailableError(absl::StrCat(
          "peers: rank ", rank_, " cannot listen: ", std::strerror(errno)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Descriptor>> Connect(
      const std::atomic<bool>& given_up) {
    const int64_t deadline_ns =
        MonotonicNs() + absl::ToInt64Nanoseconds(kMaxPeerJoin);
    while (Missing() > 0) {
      if (given_up) return Ended("was given up");
      if (MonotonicNs() > deadline_ns) return Ended("took too long");
      for (int rank = 0; rank < rank_; ++rank) {
        if (sockets_[rank].get() < 0) sockets_[rank] = Call(rank);
      }
      RETURN_IF_ERROR(Wait());
    }
    return std::move(sockets_);
  }

 private:
  int64_t Missing() const {
    return std::count_if(sockets_.begin(), sockets_.end(),
                         [](const Descriptor& s) { return s.get() < 0; }) -
           1;  // this one
  }

  absl::Status Ended(absl::string_view why) const {
    return absl::UnavailableError(absl::StrCat("peers: joining as rank ", rank_,
                                               " of ", size_, " ", why, "; ",
                                               Missing(), " are missing"));
  }

  // None where nobody listens yet, or a stranger does.
  Descriptor Call(int rank) const {
    Descriptor socket = NewSocket();
    const Address other = AddressOf(id_, rank);
    const std::string hello = PeerHello(id_, rank_, size_);
    if (socket.get() < 0 ||
        connect(socket.get(), reinterpret_cast<const sockaddr*>(&other.address),
                other.bytes) != 0 ||
        !IsOurs(socket) ||
        send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL) !=
            static_cast<ssize_t>(hello.size())) {
      return Descriptor();
    }
    return socket;
  }

  // For somebody to call or to speak, for kRetryMs at most.
  absl::Status Wait() {
    std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
    for (const Caller& caller : callers_) {
      polled.push_back({caller.socket.get(), POLLIN, 0});
    }
    // Who has joined may send already; here it only must not have died.  poll
    // leaves out what is -1.
    const size_t members = polled.size();
    for (const Descriptor& socket : sockets_) {
      polled.push_back({socket.get(), POLLRDHUP, 0});
    }
    if (poll(polled.data(), polled.size(), Missing() > 0 ? kRetryMs : 0) <= 0) {
      return absl::OkStatus();
    }
    for (int rank = 0; rank < size_; ++rank) {
      if (polled[members + rank].revents != 0) {
        return Ended(absl::StrCat("failed: rank ", rank, " is gone"));
      }
    }
    for (Caller& caller : callers_) Hear(caller);
    std::erase_if(callers_, [](const Caller& c) { return c.socket.get() < 0; });
    if (polled[0].revents != 0) Accept();
    return absl::OkStatus();
  }

  void Accept() {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0 || !IsOurs(socket)) return;
    if (callers_.size() == kMaxCallers) callers_.erase(callers_.begin());
    callers_.push_back({.socket = std::move(socket)});
  }

  // Takes a caller's socket once it is known, or is not one of ours.
  void Hear(Caller& caller) {
    const ssize_t got =
        recv(caller.socket.get(),
             reinterpret_cast<char*>(&caller.hello) + caller.got,
             sizeof(Hello) - caller.got, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    Descriptor socket = std::move(caller.socket);
    if (got <= 0) return;
    caller.got += static_cast<size_t>(got);
    if (caller.got < sizeof(Hello)) {
      caller.socket = std::move(socket);
      return;
    }
    const int rank = caller.hello.rank;
    const Hello wanted = HelloOf(id_, rank, size_);
    if (std::memcmp(&caller.hello, &wanted, sizeof(Hello)) == 0 &&
        rank > rank_ && rank < size_ && sockets_[rank].get() < 0) {
      sockets_[rank] = std::move(socket);
    }
  }

  const PeerGroupId& id_;
  const int rank_;
  const int size_;
  Descriptor listener_;
  std::vector<Caller> callers_;
  std::vector<Descriptor> sockets_;  // by rank; none: not there yet
};

}  // namespace

std::string PeerSocketName(const PeerGroupId& id, int rank) {
  return absl::StrCat(
      "roundhouse-peer-",
      absl::BytesToHexString(absl::string_view(id.data(), kNameBytes)), "-",
      rank);
}

std::string PeerHello(const PeerGroupId& id, int rank, int size) {
  const Hello hello = HelloOf(id, rank, size);
  return std::string(reinterpret_cast<const char*>(&hello), sizeof(hello));
}

absl::StatusOr<std::vector<Descriptor>> ConnectPeers(
    const PeerGroupId& id, int rank, int size,
    const std::atomic<bool>& given_up) {
  Mesh mesh(id, rank, size);
  RETURN_IF_ERROR(mesh.Listen());
  return mesh.Connect(given_up);
}

}  // namespace roundhouse::worker
