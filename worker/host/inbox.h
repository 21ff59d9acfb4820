// The daemon's end as a host or files worker sees it: commands in the order
// sent, answers, and a heartbeat about every second.
//
// Owner: the role's main thread; thread-compatible, all calls on that thread.
#ifndef ROUNDHOUSE_WORKER_HOST_INBOX_H_
#define ROUNDHOUSE_WORKER_HOST_INBOX_H_

#include <cstdint>
#include <deque>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/wire/channel.h"

namespace roundhouse::worker {

inline constexpr absl::Duration kHeartbeatPeriod = absl::Seconds(1);
// Commands taken from the socket ahead of their turn; further ones wait there.
inline constexpr size_t kMaxPendingCommands = 256;

class Inbox {
 public:
  // `channel` outlives the inbox.
  explicit Inbox(wire::Channel& channel) : channel_(channel) {}

  // Blocks for the next command, sending heartbeats.  Malformed datagrams are
  // logged and dropped.  UNAVAILABLE: the daemon is gone.
  absl::StatusOr<wire::Message> Next();

  // Takes what has arrived without blocking, keeping it for Next.  True when a
  // Stop is among it.  UNAVAILABLE: the daemon is gone.
  absl::StatusOr<bool> StopArrived();

  // Sends a heartbeat when one is due; drops it when the socket is full.
  void Beat();

  // Says hello, then hands over the commands, in order, until Stop; ends with
  // what `handle` or the channel failed of.
  absl::Status Serve(
      const std::function<absl::Status(const wire::Message&)>& handle);

  // Blocks while the daemon's buffer is full.
  absl::Status Answer(uint64_t attempt, wire::Body body);

  // Runs `work` on a thread of its own and beats until it has returned.
  absl::Status RunBeating(const std::function<absl::Status()>& work);

 private:
  absl::Status SayHello();
  absl::Status TakeArrived();

  wire::Channel& channel_;
  std::deque<wire::Message> pending_;
  int64_t last_beat_ns_ = 0;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_INBOX_H_
