// Between the daemon and a device worker: each slot's command arrives later
// than it was sent, everything else at once.
//
// Owner: the worker program, for as long as its process lives: the threads end
// with the channels.
#ifndef ROUNDHOUSE_TESTS_FAKES_SLOW_COMMANDS_H_
#define ROUNDHOUSE_TESTS_FAKES_SLOW_COMMANDS_H_

#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/wire/channel.h"

namespace roundhouse::fakes {

class SlowCommands {
 public:
  // `daemon` outlives it, and is used by nobody else.
  static absl::StatusOr<std::unique_ptr<SlowCommands>> Create(
      wire::Channel& daemon, absl::Duration delay);
  // REQUIRES: Stop has gone through, or the daemon is gone.
  ~SlowCommands();

  // The worker's.
  wire::Channel& channel() { return *worker_; }

 private:
  SlowCommands(wire::Channel& daemon, absl::Duration delay,
               std::unique_ptr<wire::Channel> inner,
               std::unique_ptr<wire::Channel> worker);
  void Down();
  void Up();

  wire::Channel& daemon_;
  const absl::Duration delay_;
  std::unique_ptr<wire::Channel> inner_;
  std::unique_ptr<wire::Channel> worker_;
  std::thread down_;
  std::thread up_;
};

}  // namespace roundhouse::fakes

#endif  // ROUNDHOUSE_TESTS_FAKES_SLOW_COMMANDS_H_
