#include "worker/host/inbox.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <optional>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse::worker {

absl::Status Inbox::SayHello() {
  wire::Hello hello;
  hello.pid = static_cast<uint32_t>(getpid());
  return Answer(0, hello);
}

absl::Status Inbox::Serve(
    const std::function<absl::Status(const wire::Message&)>& handle) {
  RETURN_IF_ERROR(SayHello());
  while (true) {
    ASSIGN_OR_RETURN(const wire::Message message, Next());
    if (std::holds_alternative<wire::Stop>(message.body)) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(handle(message));
  }
}

absl::StatusOr<wire::Message> Inbox::Next() {
  while (pending_.empty()) {
    Beat();
    pollfd waiting = {channel_.fd(), POLLIN, 0};
    poll(&waiting, 1,
         static_cast<int>(absl::ToInt64Milliseconds(kHeartbeatPeriod)));
    RETURN_IF_ERROR(TakeArrived());
  }
  wire::Message message = std::move(pending_.front());
  pending_.pop_front();
  return message;
}

absl::StatusOr<bool> Inbox::StopArrived() {
  RETURN_IF_ERROR(TakeArrived());
  return std::any_of(pending_.begin(), pending_.end(),
                     [](const wire::Message& message) {
                       return std::holds_alternative<wire::Stop>(message.body);
                     });
}

absl::Status Inbox::TakeArrived() {
  while (pending_.size() < kMaxPendingCommands) {
    absl::StatusOr<std::optional<wire::Message>> message =
        channel_.TryReceive();
    if (absl::IsInvalidArgument(message.status())) {
      RH_LOG(kError) << "dropped a malformed command: "
                     << std::string(message.status().message());
      continue;
    }
    // What was sent before the daemon went is still to be done.
    if (!message.ok() && !pending_.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(message.status());
    if (!message->has_value()) return absl::OkStatus();
    pending_.push_back(std::move(**message));
  }
  return absl::OkStatus();
}

void Inbox::Beat() {
  const int64_t now = MonotonicNs();
  if (now - last_beat_ns_ < absl::ToInt64Nanoseconds(kHeartbeatPeriod)) return;
  last_beat_ns_ = now;
  const absl::Status sent = channel_.TrySend({0, wire::Heartbeat{now}});
  if (!sent.ok() && !absl::IsResourceExhausted(sent)) {
    RH_LOG(kWarning) << "heartbeat: " << std::string(sent.message());
  }
}

absl::Status Inbox::Answer(uint64_t attempt, wire::Body body) {
  return channel_.Send({attempt, std::move(body)});
}

absl::Status Inbox::RunBeating(const std::function<absl::Status()>& work) {
  std::future<absl::Status> result = std::async(std::launch::async, work);
  const auto period = absl::ToChronoNanoseconds(kHeartbeatPeriod);
  while (result.wait_for(period) != std::future_status::ready) Beat();
  return result.get();
}

}  // namespace roundhouse::worker
