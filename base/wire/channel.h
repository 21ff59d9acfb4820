// A connected Unix SOCK_SEQPACKET socket that carries wire::Message.
//
// Thread rule: Send may be called by one thread at a time, Receive by another.
#ifndef ROUNDHOUSE_BASE_WIRE_CHANNEL_H_
#define ROUNDHOUSE_BASE_WIRE_CHANNEL_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/wire/messages.h"

namespace roundhouse::wire {

class Channel {
 public:
  // Takes ownership of a connected SOCK_SEQPACKET descriptor.
  explicit Channel(int fd) : fd_(fd) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Two connected ends, close-on-exec, with buffers for one full message each.
  static absl::StatusOr<
      std::pair<std::unique_ptr<Channel>, std::unique_ptr<Channel>>>
  Pair();

  // Blocks while the peer's buffer is full.  UNAVAILABLE: the peer is gone.
  absl::Status Send(const Message& message);

  // As Send, but never blocks: RESOURCE_EXHAUSTED when the peer's buffer is
  // full, and nothing was sent.
  absl::Status TrySend(const Message& message);

  // Blocks for the next message.  UNAVAILABLE: the peer is gone and everything
  // it sent has been received.  INVALID_ARGUMENT: a malformed message, dropped.
  absl::StatusOr<Message> Receive();

  // The next message if one is there, nullopt if none is.
  absl::StatusOr<std::optional<Message>> TryReceive();

  int fd() const { return fd_; }

 private:
  absl::Status SendWithFlags(const Message& message, int flags);
  absl::StatusOr<std::optional<Message>> ReceiveWithFlags(int flags);

  const int fd_;
  std::string received_;  // room for a datagram, made at the first
};

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_CHANNEL_H_
