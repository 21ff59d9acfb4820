// The real probe over a fake NVML, and programs that are no probe.
#include "server/gpu/gpu_probe.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr absl::Duration kLong = absl::Minutes(5);

// A program of these lines of shell.
std::string Script(const std::string& lines) {
  static int count = 0;
  const std::string path =
      absl::StrCat(testing::TempDir(), "/probe-", ++count, ".sh");
  std::ofstream(path) << "#!/bin/sh\n" << lines << "\n";
  EXPECT_EQ(chmod(path.c_str(), 0700), 0);
  return path;
}

// The real one, with an NVML that answers so.
std::string ProbeOver(const std::string& answers) {
  static int count = 0;
  const std::string path =
      absl::StrCat(testing::TempDir(), "/nvml-", ++count, ".txt");
  std::ofstream(path) << answers;
  const std::string root = std::filesystem::current_path().string();
  return Script(absl::StrCat("ROUNDHOUSE_FAKE_NVML='", path, "' exec '", root,
                             "/worker/probe/roundhouse-gpu-probe' --library='",
                             root, "/tests/fakes/libfake_nvml.so'"));
}

void ExpectFails(const std::string& program, absl::StatusCode code,
                 const std::string& what, absl::Duration deadline = kLong) {
  const auto report = ProbeGpusNow({program, deadline});
  EXPECT_EQ(report.status().code(), code) << report.status();
  EXPECT_TRUE(absl::StrContains(report.status().message(), what))
      << report.status();
}

TEST(GpuProbeTest, GivesTheReport) {
  const auto report = ProbeGpusNow(
      {ProbeOver("nvmlDeviceGetCount_v2=2\nnvmlDeviceGetUUID.0=GPU-a\n"
                 "nvmlDeviceGetName.0=NVIDIA Test\n"
                 "nvmlDeviceGetHandleByIndex_v2.1=error 15\n"),
       kLong});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->gpus.size(), 2u);
  EXPECT_EQ(report->gpus[0].uuid, "GPU-a");
  EXPECT_EQ(report->gpus[1].fault, "GPU is lost");
}

TEST(GpuProbeTest, ADriverThatHangsIsGivenUp) {
  ExpectFails(ProbeOver("nvmlDeviceGetCount_v2=hang\n"),
              absl::StatusCode::kDeadlineExceeded,
              "no report of the GPU probe within 200ms: killed (a call of the "
              "NVIDIA driver hangs)",
              absl::Milliseconds(200));
}

TEST(GpuProbeTest, NoDriverIsSaidInItsOwnWords) {
  ExpectFails(ProbeOver("nvmlInit_v2=error 9\n"),
              absl::StatusCode::kFailedPrecondition,
              "the GPU probe exited with status 2: roundhouse-gpu-probe: "
              "nvmlInit: Driver Not Loaded");
}

TEST(GpuProbeTest, OtherEndsAreErrors) {
  ExpectFails("/nonexistent/probe", absl::StatusCode::kInternal,
              "/nonexistent/probe");
  ExpectFails(Script("echo first >&2; echo last >&2; exit 1"),
              absl::StatusCode::kInternal,
              "the GPU probe exited with status 1: last");
  ExpectFails(Script("kill -9 $$"), absl::StatusCode::kInternal,
              "the GPU probe killed by signal 9");
  ExpectFails(Script("echo roundhouse-gpus 1"), absl::StatusCode::kInternal,
              "end: is missing");
  ExpectFails(Script("while :; do echo roundhouse-gpus 1; done"),
              absl::StatusCode::kInternal, "too long a report");
}

// As the daemon's refresh does it.
TEST(GpuProbeTest, RunsAgainAfterADeadline) {
  const auto loop = *EventLoop::Create();
  const std::string flag = testing::TempDir() + "/second";
  GpuProbe probe(*loop,
                 {Script(absl::StrCat("[ -e ", flag, " ] || { touch ", flag,
                                      "; exec sleep 1000; }\n"
                                      "echo roundhouse-gpus 1; echo end=0")),
                  absl::Seconds(2)});
  std::vector<absl::StatusCode> codes;
  GpuProbe::Done done = [&](const absl::StatusOr<wire::GpuReport>& report) {
    codes.push_back(report.status().code());
    if (report.ok()) return loop->Quit();
    // The killed one may not have been reaped yet.
    probe.Start(done);
  };
  probe.Start(done);
  loop->Run();
  ASSERT_GE(codes.size(), 2u);
  EXPECT_EQ(codes.front(), absl::StatusCode::kDeadlineExceeded);
}

TEST(GpuProbeTest, DestructionEndsIt) {
  const auto loop = *EventLoop::Create();
  auto probe = std::make_unique<GpuProbe>(
      *loop, GpuProbeOptions{Script("exec sleep 1000"), kLong});
  probe->Start([](const absl::StatusOr<wire::GpuReport>&) { FAIL(); });
  loop->After(absl::ZeroDuration(), [&] {
    probe.reset();
    loop->After(absl::ZeroDuration(), [&] { loop->Quit(); });
  });
  loop->Run();
}

}  // namespace
}  // namespace roundhouse
