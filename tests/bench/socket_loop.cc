#include "tests/bench/socket_loop.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"

namespace roundhouse::bench {
namespace {

using Channels = std::vector<std::unique_ptr<wire::Channel>>;

// Until the other ends are gone.
void Answer(const Channels& channels) {
  std::vector<pollfd> waiting;
  for (const auto& channel : channels) {
    waiting.push_back({channel->fd(), POLLIN, 0});
  }
  while (poll(waiting.data(), waiting.size(), -1) > 0) {
    for (size_t i = 0; i < channels.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      const auto message = channels[i]->TryReceive();
      if (!message.ok()) return;
      if (message->has_value() && !channels[i]->Send(**message).ok()) return;
    }
  }
}

void SleepUntil(int64_t time_ns) {
  const timespec until = absl::ToTimespec(absl::Nanoseconds(time_ns));
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) ==
         EINTR) {
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SocketLoop>> SocketLoop::Create(int width) {
  std::vector<End> here(width);
  Channels there;
  for (End& end : here) {
    ASSIGN_OR_RETURN(auto ends, wire::Channel::Pair());
    end.channel = std::move(ends.first);
    there.push_back(std::move(ends.second));
  }
  const pid_t child = fork();
  if (child < 0) {
    return absl::InternalError(absl::StrCat("fork: ", std::strerror(errno)));
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    here.clear();
    Answer(there);
    _exit(0);
  }
  return std::unique_ptr<SocketLoop>(new SocketLoop(std::move(here), child));
}

SocketLoop::~SocketLoop() {
  Join();
  ends_.clear();
  kill(other_, SIGKILL);
  waitpid(other_, nullptr, 0);
}

void SocketLoop::Start(absl::Duration pause) {
  const int64_t pause_ns = absl::ToInt64Nanoseconds(pause);
  const int64_t first_ns = MonotonicNs() + pause_ns;
  for (End& end : ends_) {
    end.thread = std::thread([this, &end, first_ns, pause_ns] {
      end.status = Run(end, first_ns, pause_ns);
    });
  }
}

void SocketLoop::Join() {
  stopping_.store(true);
  for (End& end : ends_) {
    if (end.thread.joinable()) end.thread.join();
  }
}

absl::StatusOr<std::vector<RoundTrip>> SocketLoop::Stop() {
  Join();
  std::vector<RoundTrip> trips;
  for (const End& end : ends_) {
    RETURN_IF_ERROR(end.status);
    trips.insert(trips.end(), end.trips.begin(), end.trips.end());
  }
  return trips;
}

absl::Status SocketLoop::Run(End& end, int64_t first_ns, int64_t pause_ns) {
  for (int64_t at_ns = first_ns;; at_ns += pause_ns) {
    SleepUntil(at_ns);
    RoundTrip trip;
    trip.sent_ns = MonotonicNs();
    RETURN_IF_ERROR(end.channel->Send({0, wire::Heartbeat{trip.sent_ns}}));
    RETURN_IF_ERROR(end.channel->Receive().status());
    trip.received_ns = MonotonicNs();
    end.trips.push_back(trip);
    if (stopping_.load()) return absl::OkStatus();
  }
}

}  // namespace roundhouse::bench
