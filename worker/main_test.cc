// The program itself: started as the daemon starts it, one process per role.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/wire/arena.h"
#include "base/wire/channel.h"
#include "base/wire/exit_status.h"
#include "base/wire/spawn.h"
#include "gtest/gtest.h"
#include "worker/worker_process.h"

namespace roundhouse {
namespace {

class Program : public worker::WorkerProcess {
 public:
  Program(const wire::Arena& arena, std::vector<std::string> flags)
      : WorkerProcess("worker/roundhouse-worker", arena, std::move(flags)) {}
};

class MainTest : public testing::Test {
 protected:
  std::unique_ptr<wire::Arena> arena_ = *wire::Arena::Create(1 << 20, 4);
};

class RoleTest : public MainTest,
                 public testing::WithParamInterface<const char*> {};

TEST_P(RoleTest, SaysHelloLivesAndStops) {
  Program program(*arena_, {std::string("--role=") + GetParam(), "--index=2",
                            "--threads=1", "--device-memory=123456"});
  auto message = program.channel().Receive();
  ASSERT_TRUE(message.ok()) << message.status().ToString();
  const auto* hello = std::get_if<wire::Hello>(&message->body);
  ASSERT_NE(hello, nullptr);
  EXPECT_EQ(hello->version, wire::kWireVersion);
  if (std::string(GetParam()) == "device") {
    EXPECT_EQ(hello->device_memory_bytes, 123456u);
  }
  message = program.channel().Receive();
  ASSERT_TRUE(message.ok()) << message.status().ToString();
  EXPECT_TRUE(std::holds_alternative<wire::Heartbeat>(message->body));
  ASSERT_TRUE(program.channel().Send({1, wire::Stop{}}).ok());
  EXPECT_EQ(program.Exit(), 0);
}

TEST_P(RoleTest, EndsWhenItsDaemonHangsUp) {
  Program program(*arena_, {std::string("--role=") + GetParam()});
  ASSERT_TRUE(program.channel().Receive().ok());
  program.HangUp();
  EXPECT_EQ(program.Exit(), 0);
}

INSTANTIATE_TEST_SUITE_P(Roles, RoleTest,
                         testing::Values("device", "host", "files"));

TEST_F(MainTest, RefusesWhatItCannotBe) {
  const std::vector<std::vector<std::string>> refused = {
      {"--role=cook"},
      {"--role=device", "--device=abacus"},
      {"--role=device", "--device=cuda"},
      {"--role=device", "--index=64"},
      {"--role=device", "--threads=0"},
      {"--role=device", "--kill-at=nowhere"},
      {"--role=device", "--link-gbps=-1"},
      {"--role=device", "--no-such-flag"},
  };
  for (const auto& flags : refused) {
    Program program(*arena_, flags);
    EXPECT_EQ(program.Exit(), 1) << flags.back();
  }
}

// A build without CUDA, or a machine without the device.
TEST_F(MainTest, SaysThatAnotherStartWouldNotHelp) {
  Program program(*arena_, {"--role=device", "--device=cuda:0",
                            "--cuda-visible-devices=GPU-none"});
  EXPECT_EQ(program.Exit(), wire::kUnableExit);
}

TEST_F(MainTest, RefusesAnArenaOfAnotherVersion) {
  arena_->header().version = wire::kWireVersion + 1;
  Program program(*arena_, {"--role=device"});
  EXPECT_EQ(program.Exit(), wire::kUnableExit);
}

// A nursery, and what it is asked for.
class NurseryTest : public MainTest {
 protected:
  NurseryTest() : nursery_(*arena_, {"--role=nursery", kRoom}) {
    EXPECT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  }

  // A process of these flags, at the other end of `channel`.
  pid_t Spawn(const std::string& role,
              std::unique_ptr<wire::Channel>& channel) {
    auto ends = *wire::Channel::Pair();
    channel = std::move(ends.first);
    const int fd = nursery_.channel().fd();
    const absl::Status asked = wire::SendSpawn(
        fd, {{"--role=" + role, "--index=2", "--channel-fd=3", "--arena-fd=4"},
             {STDERR_FILENO, STDERR_FILENO, ends.second->fd(), arena_->fd()}});
    EXPECT_TRUE(asked.ok()) << asked;
    pollfd answer{fd, POLLIN, 0};
    EXPECT_EQ(poll(&answer, 1, -1), 1);
    const auto pid = wire::TryReceiveSpawned(fd);
    EXPECT_TRUE(pid.ok()) << pid.status();
    return pid.value_or(0);
  }

  const std::string kRoom = "--room=" + std::string(100, ' ');
  Program nursery_;
};

std::string CommandLine(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  text.resize(text.find_last_not_of('\0') + 1);
  for (char& c : text) c = c == '\0' ? ' ' : c;
  return text;
}

int ExitStatus(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(NurseryTest, WhatItForksAreWorkersOfTheirOwn) {
  std::vector<pid_t> pids;
  std::vector<std::unique_ptr<wire::Channel>> channels(3);
  const std::vector<std::string> roles = {"device", "host", "files"};
  for (size_t i = 0; i < roles.size(); ++i) {
    pids.push_back(Spawn(roles[i], channels[i]));
  }
  nursery_.HangUp();
  EXPECT_EQ(nursery_.Exit(), 0);
  for (size_t i = 0; i < roles.size(); ++i) {
    const auto message = channels[i]->Receive();
    ASSERT_TRUE(message.ok()) << message.status();
    const auto* hello = std::get_if<wire::Hello>(&message->body);
    ASSERT_NE(hello, nullptr);
    EXPECT_EQ(hello->pid, static_cast<uint32_t>(pids[i]));
    EXPECT_EQ(getpgid(pids[i]), pids[i]);
    EXPECT_EQ(CommandLine(pids[i]),
              "worker/roundhouse-worker --role=" + roles[i] +
                  " --index=2 --channel-fd=3 --arena-fd=4");
    ASSERT_TRUE(channels[i]->Send({1, wire::Stop{}}).ok());
    EXPECT_EQ(ExitStatus(pids[i]), 0);
  }
}

TEST_F(NurseryTest, AForkedWorkerRefusesWhatItCannotBe) {
  std::unique_ptr<wire::Channel> channel;
  EXPECT_EQ(ExitStatus(Spawn("cook", channel)), 1);
}

TEST_F(NurseryTest, WhatIsNoRequestEndsIt) {
  ASSERT_EQ(send(nursery_.channel().fd(), "what?", 5, 0), 5);
  EXPECT_EQ(nursery_.Exit(), 1);
}

}  // namespace
}  // namespace roundhouse
