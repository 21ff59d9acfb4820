// The real probe over a fake NVML, and programs that are no probe.
#include "server/gpu/gpu_users.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

class GpuUsersTest : public testing::Test {
 protected:
  std::string Script(const std::string& lines) const {
    const std::string path = testing::TempDir() + "/users.sh";
    std::ofstream(path + ".new") << "#!/bin/sh\n" << lines << "\n";
    EXPECT_EQ(chmod((path + ".new").c_str(), 0700), 0);
    EXPECT_EQ(rename((path + ".new").c_str(), path.c_str()), 0);
    return path;
  }
  // The real one; this process is the daemon.
  std::string Probe() const {
    const std::string root = std::filesystem::current_path().string();
    return Script(absl::StrCat("ROUNDHOUSE_FAKE_NVML='", answers_, "' exec '",
                               root, "/worker/probe/roundhouse-gpu-probe' ",
                               "--library='", root,
                               "/tests/fakes/libfake_nvml.so' \"$@\""));
  }
  // Who computes on the only GPU.
  void Compute(const std::vector<int>& pids) const {
    std::ofstream file(answers_ + ".new");
    file << "nvmlDeviceGetCount_v2=1\nnvmlDeviceGetUUID.0=GPU-a\n"
            "nvmlDeviceGetComputeRunningProcesses_v3.0=";
    for (const int pid : pids) file << pid << " 100 ";
    file << "\n";
    file.close();
    EXPECT_EQ(rename((answers_ + ".new").c_str(), answers_.c_str()), 0);
  }
  static std::vector<uint32_t> PidsOf(const wire::GpuProcesses& gpu) {
    std::vector<uint32_t> pids;
    for (const wire::GpuProcess& process : gpu.processes) {
      pids.push_back(process.pid);
    }
    return pids;
  }

  const std::string answers_ = testing::TempDir() + "/nvml.txt";
};

TEST_F(GpuUsersTest, OneLookTellsOfOthers) {
  Compute({1, getpid()});
  const auto look = LookAtGpuUsers({Probe()});
  ASSERT_TRUE(look.ok()) << look.status();
  ASSERT_EQ(look->size(), 1u);
  EXPECT_EQ((*look)[0].uuid, "GPU-a");
  EXPECT_EQ(PidsOf((*look)[0]), std::vector<uint32_t>{1});
}

TEST_F(GpuUsersTest, OneThatFailsOrHangsSaysSo) {
  const auto code = [this](const std::string& lines, absl::Duration deadline) {
    return LookAtGpuUsers({Script(lines), deadline}).status();
  };
  const absl::Status unable = code("echo none >&2; exit 2", absl::Minutes(5));
  EXPECT_TRUE(absl::IsFailedPrecondition(unable));
  EXPECT_TRUE(absl::StrContains(unable.message(), "none")) << unable;
  EXPECT_TRUE(absl::IsInternal(code("exit 1", absl::Minutes(5))));
  EXPECT_FALSE(code("exit 0", absl::Minutes(5)).ok());
  EXPECT_FALSE(
      code("echo roundhouse-gpu-processes 1; echo GPU-a x", absl::Minutes(5))
          .ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      code("exec sleep 1000", absl::Milliseconds(20))));
}

// As the program may be started before the file changes, what comes first is
// not looked at.
TEST_F(GpuUsersTest, WhoComesIsTold) {
  Compute({});
  const std::unique_ptr<EventLoop> loop = *EventLoop::Create();
  std::vector<std::vector<uint32_t>> told;
  const GpuUsers users(
      *loop, Probe(),
      [&](const wire::GpuProcesses& gpu) {
        if (told.empty() || told.back() != PidsOf(gpu)) {
          told.push_back(PidsOf(gpu));
        }
        if (told.size() == 1) Compute({1});
        if (told.size() == 2) loop->Quit();
      },
      absl::Milliseconds(1));
  loop->Run();
  EXPECT_EQ(told, (std::vector<std::vector<uint32_t>>{{}, {1}}));
}

TEST_F(GpuUsersTest, OneThatEndsIsStartedAgain) {
  const std::unique_ptr<EventLoop> loop = *EventLoop::Create();
  int starts = 0;
  const GpuUsers ending(
      *loop, Script("echo roundhouse-gpu-processes 1; echo GPU-a -; exit 1"),
      [&](const wire::GpuProcesses&) {
        if (++starts == 3) loop->Quit();
      },
      absl::Milliseconds(1));
  loop->Run();
  EXPECT_GE(starts, 3);
}

TEST(CheckProcessIdsTest, OnlyTheMachinesOwnNamespaceWillDo) {
  const std::string link = testing::TempDir() + "/pid";
  for (const auto& [target, fits] :
       {std::pair<const char*, bool>{"pid:[4026531836]", true},
        {"pid:[4026532295]", false}}) {
    std::filesystem::remove(link);
    std::filesystem::create_symlink(target, link);
    const absl::Status status = CheckProcessIds(link);
    EXPECT_EQ(status.ok(), fits) << status;
    EXPECT_EQ(absl::StrContains(status.message(), "container"), !fits);
  }
  EXPECT_FALSE(CheckProcessIds(link + "-that-is-not-there").ok());
}

}  // namespace
}  // namespace roundhouse
