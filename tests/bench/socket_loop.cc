#include "tests/bench/socket_loop.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "worker/clock.h"

namespace roundhouse::bench {
namespace {

using worker::MonotonicNow;

// Until the other end is gone.
void Answer(wire::Channel& channel) {
  pollfd waiting{channel.fd(), POLLIN, 0};
  while (poll(&waiting, 1, -1) > 0) {
    const auto message = channel.TryReceive();
    if (!message.ok()) return;
    if (message->has_value() && !channel.Send(**message).ok()) return;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SocketLoop>> SocketLoop::Start(
    absl::Duration pause) {
  ASSIGN_OR_RETURN(auto ends, wire::Channel::Pair());
  const pid_t child = fork();
  if (child < 0) {
    return absl::InternalError(absl::StrCat("fork: ", std::strerror(errno)));
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ends.first.reset();
    Answer(*ends.second);
    _exit(0);
  }
  std::unique_ptr<SocketLoop> loop(
      new SocketLoop(std::move(ends.first), child));
  loop->thread_ = std::thread(
      [loop = loop.get(), pause] { loop->status_ = loop->Run(pause); });
  return loop;
}

SocketLoop::~SocketLoop() {
  stopping_.store(true);
  if (thread_.joinable()) thread_.join();
  channel_.reset();
  kill(other_, SIGKILL);
  waitpid(other_, nullptr, 0);
}

absl::StatusOr<std::vector<RoundTrip>> SocketLoop::Stop() {
  stopping_.store(true);
  thread_.join();
  RETURN_IF_ERROR(status_);
  return std::move(trips_);
}

absl::Status SocketLoop::Run(absl::Duration pause) {
  while (true) {
    RoundTrip trip;
    trip.sent_ns = MonotonicNow();
    RETURN_IF_ERROR(channel_->Send({0, wire::Heartbeat{trip.sent_ns}}));
    RETURN_IF_ERROR(channel_->Receive().status());
    trip.received_ns = MonotonicNow();
    trips_.push_back(trip);
    if (stopping_.load()) return absl::OkStatus();
    absl::SleepFor(pause);
  }
}

}  // namespace roundhouse::bench
