// The program over a fake NVML (tests/fakes/fake_nvml.cc).
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/wire/exit_status.h"
#include "base/wire/gpu_processes.h"
#include "base/wire/gpu_report.h"
#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

constexpr char kProgram[] = "worker/probe/roundhouse-gpu-probe";
constexpr char kLibrary[] = "tests/fakes/libfake_nvml.so";

struct Outcome {
  int status = -1;
  std::string output;  // stderr after stdout
};

Outcome RunShell(const std::string& command) {
  FILE* const pipe = popen(absl::StrCat(command, " 2>&1").c_str(), "r");
  Outcome outcome;
  char buffer[4096];
  size_t got;
  while ((got = fread(buffer, 1, sizeof(buffer), pipe)) > 0) {
    outcome.output.append(buffer, got);
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return outcome;
}

Outcome Probe(const std::string& answers, const std::string& flags = "") {
  const std::string path = testing::TempDir() + "/nvml.txt";
  std::ofstream(path) << answers;
  EXPECT_EQ(setenv("ROUNDHOUSE_FAKE_NVML", path.c_str(), 1), 0);
  return RunShell(absl::StrCat(kProgram, " --library=", kLibrary, flags));
}

wire::GpuReport Report(const std::string& answers) {
  const Outcome outcome = Probe(answers);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  const auto report = wire::DecodeGpuReport(outcome.output);
  EXPECT_TRUE(report.ok()) << report.status() << outcome.output;
  return report.value_or(wire::GpuReport());
}

std::string Named(int index) {
  return absl::StrCat("nvmlDeviceGetUUID.", index, "=GPU-a-", index,
                      "\nnvmlDeviceGetName.", index, "=NVIDIA Test ", index,
                      "\n");
}

TEST(ProbeTest, EveryFieldComesFromItsFunction) {
  const wire::GpuReport report = Report(
      "nvmlSystemGetDriverVersion=580.65.06\n"
      "nvmlDeviceGetCount_v2=1\n" +
      Named(0) +
      "nvmlDeviceGetPciInfo_v3.0=00000000:41:00.0\n"
      "nvmlDeviceGetMemoryInfo.0=25757220864 25000000000\n"
      "nvmlDeviceGetCudaComputeCapability.0=8 9\n"
      "nvmlDeviceGetMemoryAffinity.0=12\n"
      "nvmlDeviceGetCurrPcieLinkGeneration.0=1\n"
      "nvmlDeviceGetMaxPcieLinkGeneration.0=4\n"
      "nvmlDeviceGetCurrPcieLinkWidth.0=8\n"
      "nvmlDeviceGetMaxPcieLinkWidth.0=16\n"
      "nvmlDeviceGetPcieReplayCounter.0=4294967295\n"
      "nvmlDeviceGetPcieThroughput.0=1500 4294967295\n"
      "nvmlDeviceGetTemperature.0=41\n"
      "nvmlDeviceGetPowerUsage.0=23100\n"
      "nvmlDeviceGetEnforcedPowerLimit.0=450000\n"
      "nvmlDeviceGetClockInfo.0=2520\n"
      "nvmlDeviceGetUtilizationRates.0=97\n");
  wire::Gpu gpu;
  gpu.uuid = "GPU-a-0";
  gpu.name = "NVIDIA Test 0";
  gpu.pci_bus_id = "00000000:41:00.0";
  gpu.memory_total_bytes = 25757220864;
  gpu.memory_free_bytes = 25000000000;
  gpu.compute_major = 8;
  gpu.compute_minor = 9;
  gpu.numa_node = 2;
  gpu.pcie_generation = 1;
  gpu.pcie_max_generation = 4;
  gpu.pcie_width = 8;
  gpu.pcie_max_width = 16;
  gpu.pcie_replays = UINT32_MAX;
  gpu.pcie_rx_bytes_per_second = uint64_t{4294967295} * 1000;
  gpu.pcie_tx_bytes_per_second = 1500000;
  gpu.temperature_celsius = 41;
  gpu.power_milliwatts = 23100;
  gpu.power_limit_milliwatts = 450000;
  gpu.sm_clock_mhz = 2520;
  gpu.utilization_percent = 97;
  EXPECT_EQ(report.driver, "580.65.06");
  ASSERT_EQ(report.gpus.size(), 1u);
  EXPECT_EQ(report.gpus[0], gpu);
}

TEST(ProbeTest, WhatAGpuDoesNotSupportIsNotKnown) {
  const wire::GpuReport report =
      Report("nvmlDeviceGetCount_v2=1\n" + Named(0) +
             "nvmlDeviceGetPcieReplayCounter.0=error 999\n");
  wire::Gpu gpu;
  gpu.uuid = "GPU-a-0";
  gpu.name = "NVIDIA Test 0";
  ASSERT_EQ(report.gpus.size(), 1u);
  EXPECT_EQ(report.gpus[0], gpu);
}

// 0 and 1 reach each other, 0 only reads from 2, the driver says nothing of 1
// and 2, and 3 is not there.
TEST(ProbeTest, APeerIsWhoseMemoryIsReadAndWritten) {
  const wire::GpuReport report =
      Report("nvmlDeviceGetCount_v2=4\n" + Named(0) + Named(1) + Named(2) +
             "nvmlDeviceGetHandleByIndex_v2.3=error 15\n"
             "nvmlDeviceGetP2PStatus.0.1=0 0\n"
             "nvmlDeviceGetP2PStatus.1.0=0 0\n"
             "nvmlDeviceGetP2PStatus.0.2=0 5\n"
             "nvmlDeviceGetP2PStatus.2.0=1 0\n"
             "nvmlDeviceGetP2PStatus.1.2=error 999\n"
             "nvmlDeviceGetP2PStatus.2.1=error 999\n"
             "nvmlDeviceGetP2PStatus.0.3=0 0\n");
  ASSERT_EQ(report.gpus.size(), 4u);
  EXPECT_EQ(report.gpus[0].peers, 0b10u);
  EXPECT_EQ(report.gpus[1].peers, 0b01u);
  EXPECT_EQ(report.gpus[2].peers, 0u);
  EXPECT_FALSE(report.gpus[3].peers.has_value());
}

TEST(ProbeTest, PeersThatTheDriverSaysNothingOfAreNotKnown) {
  const wire::GpuReport report =
      Report("nvmlDeviceGetCount_v2=2\n" + Named(0) + Named(1) +
             "nvmlDeviceGetP2PStatus.0.1=error 999\n");
  ASSERT_EQ(report.gpus.size(), 2u);
  EXPECT_FALSE(report.gpus[0].peers.has_value());
  EXPECT_FALSE(report.gpus[1].peers.has_value());
}

// One has no handle any more, one is lost between two questions, one has to be
// reset, one has no name.
TEST(ProbeTest, LostGpusAreReportedWithTheOthers) {
  const wire::GpuReport report =
      Report("nvmlDeviceGetCount_v2=6\n" + Named(0) +
             "nvmlDeviceGetHandleByIndex_v2.1=error 15\n" + Named(2) +
             "nvmlDeviceGetTemperature.2=error 15\n" + Named(3) +
             "nvmlDeviceGetMemoryInfo.3=error 16\n"
             "nvmlDeviceGetUUID.4=GPU-a-4\n" +
             Named(5));
  ASSERT_EQ(report.gpus.size(), 6u);
  const std::string faults[] = {
      "", "GPU is lost", "GPU is lost", "GPU requires reset", "has no name",
      ""};
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(report.gpus[i].index, i);
    EXPECT_EQ(report.gpus[i].fault, faults[i]);
  }
  EXPECT_EQ(report.gpus[2].uuid, "GPU-a-2");
}

TEST(ProbeTest, OddCharactersOfTheDriverAreReplaced) {
  const wire::GpuReport report = Report(
      "nvmlDeviceGetCount_v2=1\nnvmlDeviceGetUUID.0=GPU-1\n"
      "nvmlDeviceGetName.0=NVIDIA\tT\xc3\xa9st\n");
  ASSERT_EQ(report.gpus.size(), 1u);
  EXPECT_EQ(report.gpus[0].name, "NVIDIA?T??st");
}

TEST(ProbeTest, NoDriverIsOneClearLine) {
  const Outcome outcome =
      RunShell(absl::StrCat(kProgram, " --library=libno-such-nvml.so.1"));
  EXPECT_EQ(outcome.status, wire::kUnableExit);
  EXPECT_EQ(outcome.output,
            "roundhouse-gpu-probe: no NVIDIA driver: libno-such-nvml.so.1: "
            "cannot open shared object file: No such file or directory\n");
}

TEST(ProbeTest, ADriverThatIsNotLoadedIsToo) {
  const Outcome outcome = Probe("nvmlInit_v2=error 9\n");
  EXPECT_EQ(outcome.status, wire::kUnableExit);
  EXPECT_EQ(outcome.output,
            "roundhouse-gpu-probe: nvmlInit: Driver Not Loaded\n");
}

TEST(ProbeTest, AnotherLibraryIsRefusedByTheFunctionItLacks) {
  const Outcome outcome =
      RunShell(absl::StrCat(kProgram, " --library=libc.so.6"));
  EXPECT_EQ(outcome.status, wire::kUnableExit);
  EXPECT_EQ(outcome.output,
            "roundhouse-gpu-probe: libc.so.6 is not NVML: it lacks "
            "nvmlInit_v2\n");
}

TEST(ProbeTest, OtherErrorsFail) {
  Outcome outcome = Probe("nvmlInit_v2=error 999\n");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.output, "roundhouse-gpu-probe: nvmlInit: Unknown Error\n");
  outcome = Probe("nvmlDeviceGetCount_v2=error 999\n");
  EXPECT_EQ(outcome.status, 1);
  outcome = Probe("nvmlDeviceGetCount_v2=2\nnvmlDeviceGetUUID.0=GPU-a-0\n" +
                  Named(0) +
                  "nvmlDeviceGetUUID.1=GPU-a-0\n"
                  "nvmlDeviceGetName.1=NVIDIA\n");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("uuid: GPU-a-0 is there twice"),
            std::string::npos);
}

constexpr char kWatched[] =
    "nvmlDeviceGetCount_v2=3\nnvmlDeviceGetUUID.0=GPU-a-0\n"
    "nvmlDeviceGetHandleByIndex_v2.1=error 15\nnvmlDeviceGetUUID.2=GPU-a-2\n"
    "nvmlDeviceRegisterEvents.0=\nnvmlDeviceRegisterEvents.2=\n";

TEST(WatchTest, XidsArePrintedAsTheyHappen) {
  const Outcome outcome = Probe(
      absl::StrCat(kWatched,
                   "nvmlEventSetWait_v2=2 79 error 10 0 13 1 48 error 15\n"),
      " --watch");
  EXPECT_EQ(outcome.status, 1);
  // Nothing is recorded of the second GPU, which was lost at the start.
  EXPECT_EQ(outcome.output,
            "roundhouse-gpu-events 1\nGPU-a-2 xid 79\nGPU-a-0 xid 13\n"
            "roundhouse-gpu-probe: nvmlEventSetWait: GPU is lost\n");
}

TEST(WatchTest, GpusThatTellNothingAreSaidSo) {
  const Outcome outcome = Probe(
      "nvmlDeviceGetCount_v2=1\nnvmlDeviceGetUUID.0=GPU-a-0\n", " --watch");
  EXPECT_EQ(outcome.status, wire::kUnableExit);
  EXPECT_EQ(outcome.output,
            "roundhouse-gpu-probe: the driver tells of no GPU's Xid errors\n");
}

// Another time it may.
TEST(WatchTest, ErrorsThatMayPassAreNoReasonToGiveUp) {
  Outcome outcome = Probe(
      "nvmlDeviceGetCount_v2=1\nnvmlDeviceGetHandleByIndex_v2.0=error 15\n",
      " --watch");
  EXPECT_EQ(outcome.status, 1);
  outcome = Probe(
      "nvmlDeviceGetCount_v2=1\nnvmlDeviceGetUUID.0=GPU-a-0\n"
      "nvmlDeviceRegisterEvents.0=error 999\n",
      " --watch");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.output,
            "roundhouse-gpu-probe: nvmlDeviceRegisterEvents: Unknown Error\n");
}

// What it prints of the processes that do not descend from `but`, one look.
std::vector<std::string> Processes(const std::string& answers, int but) {
  const Outcome outcome =
      Probe(answers, absl::StrCat(" --looks=1 --processes_but=", but));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  std::vector<std::string> lines =
      absl::StrSplit(outcome.output, '\n', absl::SkipEmpty());
  EXPECT_FALSE(lines.empty());
  EXPECT_EQ(lines.at(0), wire::kGpuProcessesBegin);
  lines.erase(lines.begin());
  return lines;
}

// The word for this test, as the program prints it.
std::string Own(const std::string& use) {
  return absl::StrCat(getpid(), ",", use, ",", getuid(), ",",
                      wire::NameOfProcess("probe_test"));
}

TEST(ProcessesTest, WhoComputesAndWhoDrawsIsTold) {
  const int self = getpid();
  const std::vector<std::string> lines = Processes(
      absl::StrCat("nvmlDeviceGetCount_v2=4\nnvmlDeviceGetUUID.0=GPU-a-0\n"
                   "nvmlDeviceGetUUID.1=GPU-a-1\n"
                   "nvmlDeviceGetHandleByIndex_v2.2=error 15\n"
                   "nvmlDeviceGetUUID.3=GPU-a-3\n"
                   "nvmlDeviceGetMemoryInfo.0=25757220864 0\n"
                   // No such process any more.
                   "nvmlDeviceGetComputeRunningProcesses_v3.0=2147483600 7 ",
                   self,
                   " 1073741824\nnvmlDeviceGetGraphicsRunningProcesses_v3.0=",
                   self, " 1000 1 0\nnvmlDeviceGetProcessUtilization.0=", self,
                   " 35 ", self, " 255 ", self,
                   " 7\nnvmlDeviceGetComputeRunningProcesses_v3.1=\n"
                   "nvmlDeviceGetGraphicsRunningProcesses_v3.1=",
                   self, " -\nnvmlDeviceGetProcessUtilization.1=error 3\n"),
      1 << 30);
  ASSERT_EQ(lines.size(), 3u);
  const auto gpu = wire::DecodeGpuProcesses(lines[0]);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  EXPECT_EQ(gpu->uuid, "GPU-a-0");
  EXPECT_EQ(gpu->memory_bytes, 25757220864);
  ASSERT_EQ(gpu->processes.size(), 2u);
  EXPECT_EQ(gpu->processes[0].pid, 1u);
  EXPECT_FALSE(gpu->processes[0].compute);
  EXPECT_EQ(gpu->processes[0].busy_percent, 0u);
  EXPECT_NE(lines[0].find(Own("compute,1073741824,100")), std::string::npos)
      << lines[0];
  EXPECT_EQ(lines[1], "GPU-a-1 - " + Own("graphics,-,-"));
  EXPECT_EQ(lines[2], "GPU-a-3 unknown Unknown Error");
}

TEST(ProcessesTest, NobodyComputesWhereTheDriverFoundNoSample) {
  const std::vector<std::string> lines = Processes(
      absl::StrCat("nvmlDeviceGetCount_v2=1\nnvmlDeviceGetUUID.0=GPU-a-0\n"
                   "nvmlDeviceGetComputeRunningProcesses_v3.0=",
                   getpid(), " 7\nnvmlDeviceGetProcessUtilization.0=error 6"),
      1 << 30);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], "GPU-a-0 - " + Own("compute,7,0"));
}

TEST(ProcessesTest, TheDaemonsOwnAreLeftOut) {
  const std::string answers = absl::StrCat(
      "nvmlDeviceGetCount_v2=1\nnvmlDeviceGetUUID.0=GPU-a-0\n"
      "nvmlDeviceGetComputeRunningProcesses_v3.0=",
      getpid(), " 7\n");
  EXPECT_EQ(Processes(answers, getpid()),
            std::vector<std::string>{"GPU-a-0 -"});
  EXPECT_EQ(Processes(answers, getppid()),
            std::vector<std::string>{"GPU-a-0 -"});
}

TEST(ProcessesTest, WithoutGpusThatAnswerItFails) {
  const Outcome outcome = Probe(
      "nvmlDeviceGetCount_v2=1\nnvmlDeviceGetHandleByIndex_v2.0=error 15\n",
      " --processes_but=1");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.output, "roundhouse-gpu-probe: no GPU answers\n");
}

}  // namespace
}  // namespace roundhouse::worker
