// A worker process without Torch for tests of server/pool: it says hello and
// answers every command at once, or misbehaves as --kill-at tells it.
//
//   die-at-start      dies before it has said hello
//   die               dies at its first command, which stays unread
//   answer-and-die    answers its first command, dies with the next one unread
//   silent            says hello and nothing ever after
//   babble            sends a datagram that is no message
//   deaf              ignores Stop
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <variant>

#include "base/wire/channel.h"

namespace roundhouse {
namespace {

[[noreturn]] void Die() {
  kill(getpid(), SIGKILL);
  while (true) pause();
}

void WaitForMail(int fd) {
  char byte;
  while (recv(fd, &byte, 1, MSG_PEEK) < 0) {
  }
}

void Answer(wire::Channel& channel, const wire::Message& message) {
  wire::Message answer;
  answer.attempt = message.attempt;
  if (const auto* slot = std::get_if<wire::RunSlot>(&message.body)) {
    wire::SlotDone done;
    done.slot = slot->slot;
    answer.body = done;
  } else if (const auto* op = std::get_if<wire::HostOp>(&message.body)) {
    wire::HostOpDone done;
    done.operation = op->operation;
    answer.body = done;
  } else {
    return;
  }
  if (!channel.Send(answer).ok()) exit(0);
}

int Main(const std::string& way) {
  wire::Channel channel(3);
  if (way == "die-at-start") {
    std::fputs("no such device\n", stderr);
    return 7;
  }
  wire::Hello hello;
  hello.pid = static_cast<uint32_t>(getpid());
  if (!channel.Send({0, hello}).ok()) return 1;
  if (way == "silent") {
    while (true) pause();
  }
  if (way == "babble" && send(channel.fd(), "what?", 5, 0) != 5) return 1;
  if (way == "die") {
    WaitForMail(channel.fd());
    Die();
  }
  while (true) {
    const auto message = channel.Receive();
    if (!message.ok()) return 0;
    const bool stop = std::holds_alternative<wire::Stop>(message->body);
    if (stop && way != "deaf") return 0;
    if (way == "answer-and-die") {
      WaitForMail(channel.fd());
      Answer(channel, *message);
      Die();
    }
    Answer(channel, *message);
  }
}

}  // namespace
}  // namespace roundhouse

int main(int argc, char** argv) {
  std::string way;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--kill-at=", 10) == 0) way = argv[i] + 10;
  }
  return roundhouse::Main(way);
}
