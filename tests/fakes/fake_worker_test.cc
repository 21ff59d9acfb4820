// The program itself: its roles, and what it refuses.
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/wire/arena.h"
#include "base/wire/channel.h"
#include "gtest/gtest.h"
#include "worker/worker_process.h"

namespace roundhouse::fakes {
namespace {

std::string CostsFile() {
  const std::string path = testing::TempDir() + "/costs.csv";
  std::ofstream(path) << "layer,forward_ms,recompute_ms,backward_ms\n"
                         "0,1,1,2\n1,3,0,4\n";
  return path;
}

class Program : public worker::WorkerProcess {
 public:
  Program(const wire::Arena& arena, std::vector<std::string> flags)
      : WorkerProcess("tests/fakes/fake_worker", arena, std::move(flags)) {}
};

class RoleTest : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<wire::Arena> arena_ = *wire::Arena::Create(1 << 20, 4);
};

TEST_P(RoleTest, SaysHelloAndStops) {
  Program program(*arena_,
                  {std::string("--role=") + GetParam(), "--index=2",
                   "--device-memory=123456", "--costs=" + CostsFile()});
  const auto message = program.channel().Receive();
  ASSERT_TRUE(message.ok()) << message.status();
  const auto* hello = std::get_if<wire::Hello>(&message->body);
  ASSERT_NE(hello, nullptr);
  EXPECT_EQ(hello->version, wire::kWireVersion);
  if (std::string(GetParam()) == "device") {
    EXPECT_EQ(hello->device_memory_bytes, 123456u);
  }
  ASSERT_TRUE(program.channel().Send({1, wire::Stop{}}).ok());
  EXPECT_EQ(program.Exit(), 0);
}

INSTANTIATE_TEST_SUITE_P(Roles, RoleTest,
                         testing::Values("device", "host", "files"));

class BadFlagsTest : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(BadFlagsTest, AreRefused) {
  const auto arena = *wire::Arena::Create(1 << 20, 4);
  std::vector<std::string> flags = {"--costs=" + CostsFile()};
  flags.insert(flags.end(), GetParam().begin(), GetParam().end());
  Program program(*arena, flags);
  EXPECT_EQ(program.Exit(), 1);
}

INSTANTIATE_TEST_SUITE_P(
    Flags, BadFlagsTest,
    testing::Values(
        std::vector<std::string>{"--role=cook"},
        std::vector<std::string>{"--role=device", "--costs="},
        std::vector<std::string>{"--role=device", "--costs=/no/such/file"},
        std::vector<std::string>{"--role=device", "--cost-scale=0"},
        std::vector<std::string>{"--role=device", "--cost-scale=fast"},
        std::vector<std::string>{"--role=device", "--speeds=0"},
        std::vector<std::string>{"--role=device", "--speeds=fast"},
        std::vector<std::string>{"--role=device", "--link-gbps=-1"},
        std::vector<std::string>{"--role=device", "--device=cuda"},
        std::vector<std::string>{"--role=device", "--kill-at=nowhere"},
        std::vector<std::string>{"--role=host", "--host-gbps=-1"},
        std::vector<std::string>{"--role=host", "--host-gbps=nan"},
        std::vector<std::string>{"--role=device", "--no-such-flag"}));

}  // namespace
}  // namespace roundhouse::fakes
