// A worker process without Torch for tests of server/workers: it says hello and
// answers every command at once, or misbehaves as --kill-at tells it.
//
//   die-at-start      dies before it has said hello
//   never-up          hangs before it has said hello
//   slow-start        says hello 600 ms late
//   unable            ends with wire::kUnableExit before it has said hello
//   tell-arguments    dies once it is up, its arguments its last words
//   die               dies at its first command, which stays unread
//   answer-and-die    answers its first command, dies with the next one unread
//   silent            says hello and nothing ever after
//   stuck             says that it lives, and ends no slot
//   pins              says with each answer that it has pinned 4096 bytes
//   babble            sends a datagram that is no message
//   deaf              ignores Stop
//   nan               its losses are not finite
//   overflow          of its norms the 6th and every 17th after it is infinite
//   always-overflow   all its norms are infinite
//   drift             slots of every other 32 steps say they took three times
//                     as long
//   sluggish          slots say they took four times as long
//   fail              every command fails, short of memory
//   fail-two          samples of more than one sequence fail, short of memory
//   slow              takes 30 ms for each command
//   full              what it saves does not fit on the disk
//   broken            what it saves can't be written to the disk
//   lonely            joins no group of peers
//   forlorn           does not answer to one either
//   joins-and-dies    dies when it is to join one
//
// It computes nothing: a loss is 1 nat per micro-batch, a norm 1; a slot says
// it took 1, 2, 3 and 4 ms in its phases, a host operation 2 ms.  Slots wait
// for the versions of the units they read, updates raise them.  Saves write
// what lies in the arena, loads leave it as it is.  A sample's next token is
// the last one plus one, modulo 50.  It joins a group of peers at once.
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "base/wire/arena.h"
#include "base/wire/channel.h"
#include "base/wire/exit_status.h"
#include "base/wire/words.h"
#include "tests/fakes/answers.h"
#include "worker/nursery.h"

namespace roundhouse {
namespace {

[[noreturn]] void Die() {
  kill(getpid(), SIGKILL);
  while (true) pause();
}

int64_t Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

void WaitForMail(int fd) {
  char byte;
  while (recv(fd, &byte, 1, MSG_PEEK) < 0) {
  }
}

// False when the daemon wanted the slot back first.
bool WaitForVersions(wire::Arena& arena, int index,
                     const wire::Message& message,
                     const std::vector<wire::SlotUnit>& units) {
  const wire::Doorbell& bell = arena.doorbells().bell[index];
  for (const wire::SlotUnit& unit : units) {
    const wire::Word& word = arena.WordAt(unit.version.offset);
    while (!wire::Reached(word, unit.version.value)) {
      if (wire::Cancelled(bell, message.attempt)) return false;
      usleep(100);
    }
  }
  return !wire::Cancelled(bell, message.attempt);
}

double NormSquared(const wire::HostOp& op, const std::string& way) {
  static int norms = 0;
  if (!op.want_norm) return 1;
  const bool overflow = ++norms % 17 == 6;
  return way == "always-overflow" || (way == "overflow" && overflow)
             ? std::numeric_limits<double>::infinity()
             : 1;
}

void RaiseVersion(wire::Arena& arena, const wire::HostOp& op) {
  if (op.kind != HostOpKind::kUpdate) return;
  wire::Word& word = arena.WordAt(op.version.offset);
  if (wire::Reached(word, op.version.value)) return;
  wire::Raise(word, op.version.value, arena.doorbells());
}

int64_t TimesLonger(const wire::RunSlot& slot, const std::string& way) {
  if (way == "sluggish") return 4;
  return way == "drift" && slot.step / 32 % 2 != 0 ? 3 : 1;
}

wire::Body DoneSlot(const wire::RunSlot& slot, const std::string& way) {
  const int64_t times = TimesLonger(slot, way);
  wire::SlotDone done;
  done.slot = slot.slot;
  done.started_ns = done.ended_ns = Now();
  done.wait_ns = 1000000;
  done.h2d_ns = 2000000;
  done.compute_ns = times * 3000000;
  done.d2h_ns = 4000000;
  const bool backward =
      slot.kind == SlotKind::kFused || slot.kind == SlotKind::kBackward;
  for (uint32_t layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
    done.layers.push_back({layer,
                           static_cast<uint32_t>(slot.micro_batches.size()),
                           times * 1000000, backward ? times * 2000000 : 0});
  }
  if (slot.kind == SlotKind::kFused || slot.kind == SlotKind::kEvaluate) {
    for (size_t i = 0; i < slot.micro_batches.size(); ++i) {
      done.results.push_back(
          {1.0, 1, way != "nan" ? wire::Finite::kYes : wire::Finite::kNo, 0});
    }
  }
  return done;
}

wire::Body Failure(uint64_t id) {
  constexpr uint32_t kResourceExhausted = 8;
  return wire::Failed{id, kResourceExhausted, "out of memory"};
}

wire::Body BrokenDisk(uint64_t id) {
  constexpr uint32_t kInternal = 13;
  return wire::Failed{id, kInternal, "Input/output error"};
}

void Answer(wire::Channel& channel, wire::Arena& arena, int index,
            const wire::Message& message, const std::string& way) {
  const bool fail = way == "fail";
  wire::Message answer;
  answer.attempt = message.attempt;
  if (const auto* slot = std::get_if<wire::RunSlot>(&message.body)) {
    if (fail) {
      answer.body = Failure(slot->slot);
    } else if (WaitForVersions(arena, index, message, slot->units)) {
      const wire::SlotStarted started = {.slot = slot->slot, .time_ns = Now()};
      if (way == "tells" && !channel.Send({message.attempt, started}).ok()) {
        exit(0);
      }
      answer.body = DoneSlot(*slot, way);
    } else {
      answer.body = wire::Withdrawn{slot->slot};
    }
  } else if (const auto* sample = std::get_if<wire::RunSample>(&message.body)) {
    const bool refuse =
        fail || (way == "fail-two" && sample->sequences.size() > 1);
    answer.body =
        !refuse && WaitForVersions(arena, index, message, sample->units)
            ? wire::Body(fakes::DoneSample(arena, *sample))
            : Failure(sample->sample);
  } else if (const auto* op = std::get_if<wire::HostOp>(&message.body)) {
    wire::HostOpDone done;
    done.operation = op->operation;
    done.norm_squared = NormSquared(*op, way);
    done.started_ns = Now();
    done.ended_ns = done.started_ns + 2000000;
    if (!fail) RaiseVersion(arena, *op);
    answer.body = fail ? Failure(op->operation) : wire::Body(done);
  } else if (const auto* file = std::get_if<wire::FileOp>(&message.body)) {
    const bool saves = file->kind == wire::FileOpKind::kSave;
    const bool full = saves && way == "full";
    static bool gone = way == "no-such-file";
    if (std::exchange(gone, false)) {
      constexpr uint32_t kNotFound = 5;
      answer.body =
          wire::Failed{file->operation, kNotFound, "a file: no such file"};
    } else if (saves && way == "broken") {
      answer.body = BrokenDisk(file->operation);
    } else {
      answer.body = fail || full || !fakes::Save(arena, *file)
                        ? Failure(file->operation)
                        : wire::Body(wire::FileOpDone{file->operation, 1});
    }
  } else if (const auto* join = std::get_if<wire::JoinPeers>(&message.body)) {
    if (way == "forlorn") return;
    if (way == "joins-and-dies") Die();
    wire::PeersInvited invited{.group = join->group};
    invited.id[0] = 'i';
    if (way == "lonely" || (join->rank > 0 && join->id != invited.id)) {
      answer.body = wire::PeersLeft{join->group, "no way there"};
    } else {
      if (join->rank == 0 && !channel.Send({0, invited}).ok()) exit(0);
      answer.body = wire::PeersJoined{join->group};
    }
  } else if (const auto* rows = std::get_if<wire::MergeRows>(&message.body)) {
    answer.body = fail || way == "full" || !fakes::Merge(*rows)
                      ? Failure(rows->operation)
                      : wire::Body(wire::FileOpDone{rows->operation, 1});
  } else {
    return;
  }
  if (way == "slow") usleep(30000);
  if (way == "pins" && !channel.Send({0, wire::Heartbeat{Now(), 4096}}).ok()) {
    exit(0);
  }
  if (!channel.Send(answer).ok()) exit(0);
}

int Main(const std::string& way, int index,
         const std::vector<std::string>& arguments) {
  wire::Channel channel(3);
  const auto arena = *wire::Arena::Map(4);
  if (way == "die-at-start") {
    std::fputs("no such device\n", stderr);
    return 7;
  }
  if (way == "unable") {
    std::fputs("no driver\n", stderr);
    return wire::kUnableExit;
  }
  if (way == "never-up") {
    while (true) pause();
  }
  if (way == "slow-start") usleep(600000);
  wire::Hello hello;
  hello.pid = static_cast<uint32_t>(getpid());
  if (!channel.Send({0, hello}).ok()) return 1;
  if (way == "tell-arguments") {
    for (const std::string& argument : arguments) {
      std::fprintf(stderr, " %s", argument.c_str());
    }
    Die();
  }
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
      Answer(channel, *arena, index, *message, way);
      Die();
    }
    if (way == "stuck" &&
        std::holds_alternative<wire::RunSlot>(message->body)) {
      while (channel.Send({0, wire::Heartbeat{Now(), 0}}).ok()) usleep(5000);
      return 0;
    }
    Answer(channel, *arena, index, *message, way);
  }
}

}  // namespace
}  // namespace roundhouse

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments[0] == "--role=nursery") {
    auto forked = roundhouse::worker::RunNursery(3);
    if (!forked.ok() || !forked->has_value()) return forked.ok() ? 0 : 1;
    arguments = **std::move(forked);
  }
  std::string way;
  int index = 0;
  for (const std::string& flag : arguments) {
    if (flag.compare(0, 10, "--kill-at=") == 0) way = flag.substr(10);
    if (flag.compare(0, 8, "--index=") == 0) index = stoi(flag.substr(8));
  }
  return roundhouse::Main(way, index, arguments);
}
