// The program itself: started as the daemon starts it, one process per role.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/wire/arena.h"
#include "base/wire/channel.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr const char* kProgram = "worker/roundhouse-worker";

// A worker process, its channel and its exit.
class Program {
 public:
  Program(const wire::Arena& arena, std::vector<std::string> flags) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    const int arena_fd = dup(arena.fd());  // without close-on-exec
    flags.insert(flags.begin(), kProgram);
    flags.push_back("--channel-fd=" + std::to_string(ends[1]));
    flags.push_back("--arena-fd=" + std::to_string(arena_fd));
    std::vector<char*> argv;
    for (std::string& flag : flags) argv.push_back(flag.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      execv(kProgram, argv.data());
      _exit(99);
    }
    close(ends[1]);
    close(arena_fd);
    channel_ = std::make_unique<wire::Channel>(ends[0]);
  }
  ~Program() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    if (pid_ > 0) Exit();
  }

  wire::Channel& channel() { return *channel_; }
  void HangUp() { channel_.reset(); }
  int Exit() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
  std::unique_ptr<wire::Channel> channel_;
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

TEST_F(MainTest, RefusesAnArenaOfAnotherVersion) {
  arena_->header().version = wire::kWireVersion + 1;
  Program program(*arena_, {"--role=device"});
  EXPECT_EQ(program.Exit(), 1);
}

}  // namespace
}  // namespace roundhouse
