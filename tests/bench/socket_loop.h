// Round trips that do nothing, to lay beside the daemon's dispatch: from a
// thread's timestamp over a worker's kind of socket to another process, which
// sleeps until something comes and answers at once, and back to the receipt of
// the answer.  The same socket, messages and code as between worker and daemon.
// Several threads make theirs at the same moment, as workers do that end equal
// slots together.
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
  // Forks the other process.  REQUIRES: this process has one thread, width
  // >= 1.
  static absl::StatusOr<std::unique_ptr<SocketLoop>> Create(int width);
  ~SocketLoop();
  SocketLoop(const SocketLoop&) = delete;
  SocketLoop& operator=(const SocketLoop&) = delete;

  // From now on `width` round trips every `pause`, at least one of each thread.
  // REQUIRES: called once.
  void Start(absl::Duration pause);
  // Ends it; the round trips made.  UNAVAILABLE: the other process died.
  // REQUIRES: started; called once.
  absl::StatusOr<std::vector<RoundTrip>> Stop();

 private:
  // By its thread while that runs.
  struct End {
    std::unique_ptr<wire::Channel> channel;
    std::vector<RoundTrip> trips;
    absl::Status status;
    std::thread thread;
  };

  SocketLoop(std::vector<End> ends, pid_t other)
      : ends_(std::move(ends)), other_(other) {}
  absl::Status Run(End& end, int64_t first_ns, int64_t pause_ns);
  void Join();

  std::vector<End> ends_;
  const pid_t other_;
  std::atomic<bool> stopping_{false};
};

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_SOCKET_LOOP_H_
