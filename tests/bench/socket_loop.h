// A round trip that does nothing, to lay beside the daemon's dispatch: from a
// process's timestamp over a worker's kind of socket to another process, which
// sleeps until something comes and answers at once, and back to the receipt of
// the answer.  The same socket, messages and code as between worker and daemon.
#ifndef ROUNDHOUSE_TESTS_BENCH_SOCKET_LOOP_H_
#define ROUNDHOUSE_TESTS_BENCH_SOCKET_LOOP_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/wire/channel.h"

namespace roundhouse::bench {

struct RoundTrip {
  int64_t sent_ns = 0;  // CLOCK_MONOTONIC
  int64_t received_ns = 0;
};

// Thread-compatible.
class SocketLoop {
 public:
  // Forks the other process and makes a round trip every `pause` from now on,
  // one at least.
  // REQUIRES: this process has one thread.
  static absl::StatusOr<std::unique_ptr<SocketLoop>> Start(
      absl::Duration pause);
  ~SocketLoop();
  SocketLoop(const SocketLoop&) = delete;
  SocketLoop& operator=(const SocketLoop&) = delete;

  // Ends it; the round trips made.  UNAVAILABLE: the other process died.
  // REQUIRES: called once.
  absl::StatusOr<std::vector<RoundTrip>> Stop();

 private:
  SocketLoop(std::unique_ptr<wire::Channel> channel, pid_t other)
      : channel_(std::move(channel)), other_(other) {}
  absl::Status Run(absl::Duration pause);

  std::unique_ptr<wire::Channel> channel_;
  const pid_t other_;
  std::atomic<bool> stopping_{false};
  // By the thread while it runs.
  std::vector<RoundTrip> trips_;
  absl::Status status_;
  std::thread thread_;
};

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_SOCKET_LOOP_H_
