#include "worker/device/cpu/socket_peers.h"

#include <errno.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/files/descriptor.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"
#include "worker/device/cpu/socket_mesh.h"

namespace roundhouse::worker {
namespace {

// The most bytes of one call: others have their turn in between.
constexpr uint64_t kMaxPieceBytes = 1 << 20;

// One direction of a copy, as it crosses a socket: its length in 8 bytes, then
// its bytes.  The length is there to be compared: nothing else would say that
// two members mean different calls.
class Message {
 public:
  Message(std::byte* data, uint64_t bytes)
      : length_(bytes),
        length_left_(bytes > 0 ? sizeof(length_) : 0),
        data_(data),
        left_(bytes) {}

  bool done() const { return length_left_ == 0 && left_ == 0; }

  // What `transfer` did with as much as can be had now, as sendmsg and recvmsg
  // return it.
  template <typename Transfer>
  ssize_t Move(Transfer transfer) {
    iovec pieces[2] = {
        {length() + sizeof(length_) - length_left_, length_left_},
        {data_, std::min(left_, kMaxPieceBytes)}};
    msghdr header = {};
    header.msg_iov = pieces;
    header.msg_iovlen = 2;
    const ssize_t moved = transfer(header);
    if (moved > 0) Advance(static_cast<size_t>(moved));
    return moved;
  }

  // Once it was received in part or in whole.
  bool IsAsLongAs(uint64_t bytes) const {
    return length_left_ > 0 || length_ == bytes;
  }

 private:
  std::byte* length() { return reinterpret_cast<std::byte*>(&length_); }

  void Advance(size_t bytes) {
    const size_t of_length = std::min(bytes, length_left_);
    length_left_ -= of_length;
    data_ += bytes - of_length;
    left_ -= bytes - of_length;
  }

  uint64_t length_;
  size_t length_left_;
  std::byte* data_;
  uint64_t left_;
};

// Both directions between this member and another one.
class Transfer {
 public:
  Transfer(const Descriptor& socket, const PeerCopy& copy)
      : fd_(socket.get()),
        copy_(copy),
        // sendmsg writes to nothing.
        send_(const_cast<std::byte*>(copy.send), copy.send_bytes),
        receive_(copy.receive, copy.receive_bytes) {}

  bool done() const { return send_.done() && receive_.done(); }

  pollfd Wanted() const {
    const int events = (send_.done() ? 0 : POLLOUT) |  //
                       (receive_.done() ? 0 : POLLIN);
    return {events == 0 ? -1 : fd_, static_cast<short>(events), 0};
  }

  // Does what can be done without blocking.
  absl::Status Advance() {
    if (!receive_.done()) {
      RETURN_IF_ERROR(Moved(receive_.Move([this](msghdr& header) {
        return recvmsg(fd_, &header, MSG_DONTWAIT);
      })));
      if (!receive_.IsAsLongAs(copy_.receive_bytes)) {
        return Failed("sends another number of bytes than is received");
      }
    }
    if (send_.done()) return absl::OkStatus();
    return Moved(send_.Move([this](msghdr& header) {
      return sendmsg(fd_, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    }));
  }

 private:
  absl::Status Moved(ssize_t moved) const {
    if (moved > 0) return absl::OkStatus();
    if (moved == 0) return Failed("is gone");
    if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
    return Failed(absl::StrCat("is gone: ", std::strerror(errno)));
  }

  absl::Status Failed(absl::string_view what) const {
    return absl::UnavailableError(
        absl::StrCat("peers: rank ", copy_.rank, " ", what));
  }

  int fd_;
  PeerCopy copy_;
  Message send_;
  Message receive_;
};

class SocketGroup : public PeerGroup {
 public:
  SocketGroup(const InjectedLoss& loss, std::vector<Descriptor> sockets)
      : loss_(loss), sockets_(std::move(sockets)) {}
  ~SocketGroup() override { SocketGroup::Abort(); }

  absl::Status Exchange(Stream&, const std::vector<PeerCopy>& copies) override {
    RETURN_IF_ERROR(State());
    std::vector<Transfer> transfers;
    for (const PeerCopy& copy : copies) {
      ROUNDHOUSE_CHECK(copy.rank >= 0 &&
                       copy.rank < static_cast<int>(sockets_.size()) &&
                       sockets_[copy.rank].get() >= 0)
          << "rank " << copy.rank;
      transfers.emplace_back(sockets_[copy.rank], copy);
    }
    const absl::Status moved = MoveAll(transfers);
    if (moved.ok()) return loss_.Check();
    {
      // Who aborted it knows why; what the sockets say of it is an echo.
      MutexLock lock(mutex_);
      if (!over_) failure_.Update(moved);
    }
    Abort();
    return State();
  }

  absl::Status Finish(Stream&) override { return State(); }

  void Abort() override {
    over_ = true;
    // Wakes who waits in poll, here and there.  Closing them is the
    // destructor's: an Exchange may be using them.
    for (const Descriptor& socket : sockets_) shutdown(socket.get(), SHUT_RDWR);
  }

 private:
  absl::Status State() const {
    RETURN_IF_ERROR(loss_.Check());
    if (!over_) return absl::OkStatus();
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    return absl::UnavailableError("peers: the group was aborted");
  }

  absl::Status MoveAll(std::vector<Transfer>& transfers) const {
    std::vector<pollfd> polled(transfers.size());
    while (true) {
      for (size_t i = 0; i < transfers.size(); ++i) {
        if (!transfers[i].done()) RETURN_IF_ERROR(transfers[i].Advance());
        polled[i] = transfers[i].Wanted();
      }
      if (std::all_of(transfers.begin(), transfers.end(),
                      [](const Transfer& t) { return t.done(); })) {
        return absl::OkStatus();
      }
      if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) {
        return absl::UnavailableError(
            absl::StrCat("peers: poll: ", std::strerror(errno)));
      }
    }
  }

  const InjectedLoss& loss_;
  const std::vector<Descriptor> sockets_;  // by rank; none: this one's
  std::atomic<bool> over_{false};
  mutable Mutex mutex_;
  // Why it is over, where an Exchange failed.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

class SocketPeers : public PeerLink {
 public:
  explicit SocketPeers(const InjectedLoss& loss) : loss_(loss) {}

  absl::StatusOr<PeerGroupId> NewGroupId() override {
    RETURN_IF_ERROR(loss_.Check());
    PeerGroupId id;
    static_assert(sizeof(id) <= 256, "as much as getrandom gives in one piece");
    if (getrandom(id.data(), id.size(), 0) != static_cast<ssize_t>(id.size())) {
      return absl::UnavailableError(
          absl::StrCat("peers: getrandom: ", std::strerror(errno)));
    }
    return id;
  }

  absl::StatusOr<std::unique_ptr<PeerGroup>> Join(
      const PeerGroupId& id, int rank, int size,
      const std::atomic<bool>& given_up) override {
    ROUNDHOUSE_CHECK(0 <= rank && rank < size && size <= kMaxPeers)
        << "rank " << rank << " of " << size;
    RETURN_IF_ERROR(loss_.Check());
    ASSIGN_OR_RETURN(std::vector<Descriptor> sockets,
                     ConnectPeers(id, rank, size, given_up));
    return std::make_unique<SocketGroup>(loss_, std::move(sockets));
  }

 private:
  const InjectedLoss& loss_;
};

}  // namespace

std::unique_ptr<PeerLink> NewSocketPeers(const InjectedLoss& loss) {
  return std::make_unique<SocketPeers>(loss);
}

}  // namespace roundhouse::worker
