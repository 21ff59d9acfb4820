#include "base/wire/channel.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace roundhouse::wire {
namespace {

absl::Status ErrnoStatus(const char* call) {
  if (errno == EPIPE || errno == ECONNRESET) {
    return absl::UnavailableError("channel: the peer is gone");
  }
  return absl::InternalError(absl::StrCat(call, ": ", std::strerror(errno)));
}

}  // namespace

Channel::~Channel() { close(fd_); }

absl::StatusOr<std::pair<std::unique_ptr<Channel>, std::unique_ptr<Channel>>>
Channel::Pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return ErrnoStatus("socketpair");
  }
  auto ends = std::make_pair(std::make_unique<Channel>(fds[0]),
                             std::make_unique<Channel>(fds[1]));
  for (int fd : fds) {
    const int bytes = 2 * kMaxMessageBytes;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) != 0) {
      return ErrnoStatus("setsockopt");
    }
  }
  return ends;
}

absl::Status Channel::SendWithFlags(const Message& message, int flags) {
  ASSIGN_OR_RETURN(const std::string datagram, Encode(message));
  while (true) {
    const ssize_t sent =
        send(fd_, datagram.data(), datagram.size(), MSG_NOSIGNAL | flags);
    if (sent == static_cast<ssize_t>(datagram.size())) return absl::OkStatus();
    if (sent >= 0) return absl::InternalError("send: short datagram");
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return absl::ResourceExhaustedError("channel: the peer's buffer is full");
    }
    return ErrnoStatus("send");
  }
}

absl::Status Channel::Send(const Message& message) {
  return SendWithFlags(message, 0);
}

absl::Status Channel::TrySend(const Message& message) {
  return SendWithFlags(message, MSG_DONTWAIT);
}

absl::StatusOr<std::optional<Message>> Channel::ReceiveWithFlags(int flags) {
  received_.resize(kMaxMessageBytes + 1);
  while (true) {
    const ssize_t got = recv(fd_, received_.data(), received_.size(), flags);
    if (got == 0) return absl::UnavailableError("channel: the peer is gone");
    if (got > 0) {
      ASSIGN_OR_RETURN(Message message,
                       Decode(absl::string_view(received_.data(),
                                                static_cast<size_t>(got))));
      return std::optional<Message>(std::move(message));
    }
    // A peer that died without reading all of its mail resets the connection.
    // The error is told once and before what the peer had sent: look again.
    if (errno == EINTR || errno == ECONNRESET) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return std::optional<Message>();
    }
    return ErrnoStatus("recv");
  }
}

absl::StatusOr<Message> Channel::Receive() {
  ASSIGN_OR_RETURN(std::optional<Message> message, ReceiveWithFlags(0));
  if (!message.has_value()) {
    return absl::InternalError("recv: the channel is not blocking");
  }
  return *std::move(message);
}

absl::StatusOr<std::optional<Message>> Channel::TryReceive() {
  return ReceiveWithFlags(MSG_DONTWAIT);
}

}  // namespace roundhouse::wire
