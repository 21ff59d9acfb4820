#include "tests/fakes/slow_commands.h"

#include <sys/socket.h>

#include <utility>
#include <variant>

#include "absl/time/clock.h"
#include "base/status.h"

namespace roundhouse::fakes {

absl::StatusOr<std::unique_ptr<SlowCommands>> SlowCommands::Create(
    wire::Channel& daemon, absl::Duration delay) {
  ASSIGN_OR_RETURN(auto ends, wire::Channel::Pair());
  return std::unique_ptr<SlowCommands>(new SlowCommands(
      daemon, delay, std::move(ends.first), std::move(ends.second)));
}

SlowCommands::SlowCommands(wire::Channel& daemon, absl::Duration delay,
                           std::unique_ptr<wire::Channel> inner,
                           std::unique_ptr<wire::Channel> worker)
    : daemon_(daemon),
      delay_(delay),
      inner_(std::move(inner)),
      worker_(std::move(worker)),
      down_([this] { Down(); }),
      up_([this] { Up(); }) {}

SlowCommands::~SlowCommands() {
  down_.join();
  // Up ends once what the worker sent is through.
  worker_.reset();
  up_.join();
}

void SlowCommands::Down() {
  while (true) {
    const absl::StatusOr<wire::Message> message = daemon_.Receive();
    if (!message.ok()) break;
    if (std::holds_alternative<wire::RunSlot>(message->body)) {
      absl::SleepFor(delay_);
    }
    if (!inner_->Send(*message).ok()) break;
    if (std::holds_alternative<wire::Stop>(message->body)) return;
  }
  shutdown(inner_->fd(), SHUT_WR);  // to the worker the daemon is gone
}

void SlowCommands::Up() {
  while (true) {
    const absl::StatusOr<wire::Message> message = inner_->Receive();
    if (!message.ok() || !daemon_.Send(*message).ok()) return;
  }
}

}  // namespace roundhouse::fakes
