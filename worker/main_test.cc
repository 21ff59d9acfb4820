// The program itself: started as the daemon starts it, one process per role.
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/wire/arena.h"
#include "base/wire/channel.h"
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
