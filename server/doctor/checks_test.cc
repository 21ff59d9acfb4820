// Each verdict of each check, from what was measured.
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/doctor/file_checks.h"
#include "server/doctor/finding.h"
#include "server/doctor/machine_checks.h"
#include "server/doctor/measures.h"
#include "server/doctor/process_checks.h"
#include "server/doctor/program_run.h"
#include "server/workers/descriptor_limit.h"

namespace roundhouse {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Kind = PathMeasure::Kind;

constexpr uint64_t kGib = uint64_t{1} << 30;
const Looker kLooker = {.uid = 990, .name = "roundhouse"};

// What holds for every finding: only what is not well has a remedy.
void ExpectVerdict(const Finding& finding, Verdict verdict) {
  EXPECT_EQ(finding.verdict, verdict) << finding.name << ": " << finding.found;
  EXPECT_FALSE(finding.name.empty());
  EXPECT_FALSE(finding.found.empty()) << finding.name;
  EXPECT_EQ(finding.remedy.empty(), verdict == Verdict::kOk)
      << finding.name << ": " << finding.remedy;
}

TEST(MachineChecksTest, Kernel) {
  ExpectVerdict(CheckKernel("6.1.0-21-amd64"), Verdict::kOk);
  ExpectVerdict(CheckKernel("5.9.0"), Verdict::kOk);
  ExpectVerdict(CheckKernel("5.4.0-generic"), Verdict::kProblem);
  ExpectVerdict(CheckKernel("4.19"), Verdict::kProblem);
  ExpectVerdict(CheckKernel("unknown"), Verdict::kWarning);
}

TEST(MachineChecksTest, Memory) {
  const MemoryMeasure memory = {.total_bytes = 100 * kGib};
  ExpectVerdict(CheckMemory(memory, 90 * kGib), Verdict::kOk);
  const Finding tight = CheckMemory(memory, 95 * kGib);
  ExpectVerdict(tight, Verdict::kWarning);
  EXPECT_THAT(tight.remedy, HasSubstr("host-memory: 90GiB"));
  ExpectVerdict(CheckMemory(memory, 101 * kGib), Verdict::kProblem);
  ExpectVerdict(CheckMemory({}, 1), Verdict::kWarning);
}

TEST(MachineChecksTest, Swap) {
  ExpectVerdict(CheckSwap({}), Verdict::kOk);
  ExpectVerdict(
      CheckSwap({.swap_total_bytes = 8 * kGib, .swap_free_bytes = 7 * kGib}),
      Verdict::kOk);
  ExpectVerdict(
      CheckSwap({.swap_total_bytes = 8 * kGib, .swap_free_bytes = 1 * kGib}),
      Verdict::kWarning);
}

TEST(MachineChecksTest, MemoryLock) {
  ExpectVerdict(CheckMemoryLock(std::nullopt, 8 * kGib, DeviceKind::kGpu),
                Verdict::kOk);
  ExpectVerdict(CheckMemoryLock(8 * kGib, 8 * kGib, DeviceKind::kGpu),
                Verdict::kOk);
  const Finding little = CheckMemoryLock(8 << 20, 8 * kGib, DeviceKind::kGpu);
  ExpectVerdict(little, Verdict::kWarning);
  EXPECT_THAT(little.remedy, HasSubstr("LimitMEMLOCK=infinity"));
  ExpectVerdict(CheckMemoryLock(8 << 20, 8 * kGib, DeviceKind::kCpu),
                Verdict::kOk);
}

TEST(MachineChecksTest, HugePages) {
  const std::string never = "always within_size advise [never] deny force";
  ExpectVerdict(CheckHugePages(never, kManyPagesBytes), Verdict::kWarning);
  ExpectVerdict(CheckHugePages(never, kManyPagesBytes - 1), Verdict::kOk);
  ExpectVerdict(CheckHugePages("always [advise] never", kManyPagesBytes),
                Verdict::kOk);
  ExpectVerdict(CheckHugePages("", kManyPagesBytes), Verdict::kOk);
}

TEST(MachineChecksTest, Gpus) {
  wire::GpuReport report;
  report.driver = "580.65.06";
  ExpectVerdict(CheckGpus(report, DeviceKind::kGpu), Verdict::kProblem);
  ExpectVerdict(CheckGpus(report, DeviceKind::kCpu), Verdict::kOk);
  report.gpus.push_back({.uuid = "GPU-1", .name = "A GPU"});
  const Finding well = CheckGpus(report, DeviceKind::kGpu);
  ExpectVerdict(well, Verdict::kOk);
  EXPECT_EQ(well.found, "driver 580.65.06, 0 A GPU");
  report.gpus.push_back({.index = 1, .fault = "GPU is lost"});
  const Finding lost = CheckGpus(report, DeviceKind::kGpu);
  ExpectVerdict(lost, Verdict::kWarning);
  EXPECT_THAT(lost.found, HasSubstr("1: GPU is lost"));
  ExpectVerdict(CheckGpus(report, DeviceKind::kCpu), Verdict::kOk);
  const absl::Status none = absl::FailedPreconditionError("no driver");
  ExpectVerdict(CheckGpus(none, DeviceKind::kCpu), Verdict::kOk);
  ExpectVerdict(CheckGpus(none, DeviceKind::kNone), Verdict::kOk);
  const Finding missing = CheckGpus(none, DeviceKind::kGpu);
  ExpectVerdict(missing, Verdict::kProblem);
  const Finding hangs =
      CheckGpus(absl::DeadlineExceededError("hangs"), DeviceKind::kGpu);
  ExpectVerdict(hangs, Verdict::kProblem);
  EXPECT_NE(hangs.remedy, missing.remedy);
}

TEST(MachineChecksTest, PcieLinks) {
  wire::GpuReport report;
  ExpectVerdict(CheckPcieLinks(report), Verdict::kOk);
  wire::Gpu gpu = {.uuid = "GPU-1", .name = "A GPU"};
  gpu.pcie_width = 16;
  gpu.pcie_max_width = 16;
  gpu.pcie_generation = 1;  // idle
  gpu.pcie_max_generation = 4;
  report.gpus.push_back(gpu);
  const Finding idle = CheckPcieLinks(report);
  ExpectVerdict(idle, Verdict::kOk);
  EXPECT_EQ(idle.found, "GPU 0 x16 generation 1 of 4");
  report.gpus[0].pcie_width = 4;
  const Finding narrow = CheckPcieLinks(report);
  ExpectVerdict(narrow, Verdict::kWarning);
  EXPECT_THAT(narrow.found,
              HasSubstr("x4 generation 1 of 4 (x16 is possible)"));
}

TEST(MachineChecksTest, Clock) {
  ExpectVerdict(CheckClock({.synchronized = true}), Verdict::kOk);
  const Finding nobody = CheckClock({});
  ExpectVerdict(nobody, Verdict::kWarning);
  EXPECT_THAT(nobody.remedy, HasSubstr("timedatectl set-ntp true"));
  ExpectVerdict(CheckClock({.error = "not permitted"}), Verdict::kWarning);
}

TEST(ProcessChecksTest, Descriptors) {
  ExpectVerdict(CheckDescriptors(std::nullopt), Verdict::kOk);
  ExpectVerdict(CheckDescriptors(kFewDescriptors), Verdict::kOk);
  ExpectVerdict(CheckDescriptors(kFewDescriptors - 1), Verdict::kWarning);
}

TEST(ProcessChecksTest, Realtime) {
  ExpectVerdict(CheckRealtime(RealtimeWish::kAsked, RealtimeRight::kPermitted),
                Verdict::kOk);
  ExpectVerdict(CheckRealtime(RealtimeWish::kOff, RealtimeRight::kRefused),
                Verdict::kOk);
  ExpectVerdict(CheckRealtime(RealtimeWish::kAsked, RealtimeRight::kRefused),
                Verdict::kWarning);
}

TEST(ProcessChecksTest, Libtorch) {
  ExpectVerdict(CheckLibtorch("/w", {}), Verdict::kOk);
  // Whatever it says, by then it has loaded everything.
  ExpectVerdict(CheckLibtorch("/w", {.exit_status = 1}), Verdict::kOk);
  const Finding missing = CheckLibtorch(
      "/w", {.exit_status = 127, .last_line = "libtorch_cpu.so: cannot open"});
  ExpectVerdict(missing, Verdict::kProblem);
  EXPECT_THAT(missing.found, HasSubstr("libtorch_cpu.so"));
  ExpectVerdict(CheckLibtorch("/w", {.exit_status = -1}), Verdict::kProblem);
  ExpectVerdict(CheckLibtorch("/w", {.status = absl::InternalError("none")}),
                Verdict::kProblem);
}

TEST(ProcessChecksTest, PythonAndTheDatasetHelper) {
  const Finding python =
      CheckPython("/python", {.last_output = "Python 3.11.2, jinja2 3.1.6"});
  ExpectVerdict(python, Verdict::kOk);
  EXPECT_EQ(python.found, "Python 3.11.2, jinja2 3.1.6");
  const ProgramEnd lacks = {.exit_status = 1,
                            .last_line = "No module named 'tokenizers'"};
  ExpectVerdict(CheckPython("/python", lacks), Verdict::kProblem);
  EXPECT_THAT(CheckPython("/python", lacks).found, HasSubstr("tokenizers"));
  ExpectVerdict(CheckDatasetHelper("/p.py", {}), Verdict::kOk);
  ExpectVerdict(CheckDatasetHelper("/p.py", lacks), Verdict::kProblem);
}

PathMeasure Directory(mode_t mode) {
  return {.kind = Kind::kDirectory,
          .mode = mode,
          .readable = true,
          .writable = true,
          .free_bytes = kLittleDiskBytes,
          .total_bytes = 2 * kLittleDiskBytes};
}

TEST(FileChecksTest, StateDirectory) {
  const PathMeasure parent = Directory(0755);
  ExpectVerdict(CheckStateDirectory("/s", Directory(0750), parent, kLooker),
                Verdict::kOk);
  ExpectVerdict(CheckStateDirectory("/s", Directory(0755), parent, kLooker),
                Verdict::kWarning);
  ExpectVerdict(CheckStateDirectory("/s", {}, parent, kLooker), Verdict::kOk);
  const Finding missing = CheckStateDirectory("/s", {}, {}, kLooker);
  ExpectVerdict(missing, Verdict::kProblem);
  EXPECT_EQ(missing.remedy, "install -d -m 0750 -o roundhouse /s");
  PathMeasure closed = Directory(0750);
  closed.writable = false;
  ExpectVerdict(CheckStateDirectory("/s", closed, parent, kLooker),
                Verdict::kProblem);
  for (const Kind kind : {Kind::kOther, Kind::kRefused, Kind::kHangs}) {
    ExpectVerdict(CheckStateDirectory("/s", {.kind = kind, .error = "no"},
                                      parent, kLooker),
                  Verdict::kProblem);
  }
}

TEST(FileChecksTest, Disk) {
  PathMeasure state = Directory(0750);
  const PathMeasure reserve = {.kind = Kind::kOther};
  ExpectVerdict(CheckDisk("/s", state, reserve), Verdict::kOk);
  EXPECT_THAT(CheckDisk("/s", state, {}).found, HasSubstr("no reserve"));
  state.free_bytes = kLittleDiskBytes - 1;
  ExpectVerdict(CheckDisk("/s", state, reserve), Verdict::kWarning);
  state.free_bytes = 1 << 20;
  ExpectVerdict(CheckDisk("/s", state, reserve), Verdict::kProblem);
  ExpectVerdict(CheckDisk("/s", {}, reserve), Verdict::kWarning);
}

TEST(FileChecksTest, SocketAndDataRoots) {
  ExpectVerdict(CheckSocketFolder("/run/r", Directory(0750), {}, kLooker),
                Verdict::kOk);
  ExpectVerdict(CheckSocketFolder("/run/r", {}, {}, kLooker),
                Verdict::kProblem);
  ExpectVerdict(CheckDataRoot("/d", Directory(0755), kLooker), Verdict::kOk);
  PathMeasure closed = Directory(0700);
  closed.readable = false;
  const Finding refused = CheckDataRoot("/d", closed, kLooker);
  ExpectVerdict(refused, Verdict::kProblem);
  EXPECT_EQ(refused.remedy, "setfacl -m u:roundhouse:rx /d");
  for (const Kind kind :
       {Kind::kMissing, Kind::kOther, Kind::kRefused, Kind::kHangs}) {
    ExpectVerdict(CheckDataRoot("/d", {.kind = kind, .error = "no"}, kLooker),
                  Verdict::kProblem);
  }
}

TEST(MeasuresTest, MemoryIsReadFromItsLines) {
  const MemoryMeasure memory = ParseMemory(
      "MemTotal:       16384 kB\nMemFree: 1 kB\nSwapTotal:  2048 kB\n"
      "SwapFree:  many kB\n");
  EXPECT_EQ(memory.total_bytes, 16u << 20);
  EXPECT_EQ(memory.swap_total_bytes, 2u << 20);
  EXPECT_EQ(memory.swap_free_bytes, 0u);
  EXPECT_EQ(ParseMemory("").total_bytes, 0u);
}

TEST(MeasuresTest, ThisMachineSaysWhatItIs) {
  EXPECT_GT(ParseMemory(ReadSystemFile("/proc/meminfo")).total_bytes, kGib / 4);
  EXPECT_EQ(CheckKernel(KernelRelease()).verdict, Verdict::kOk);
  EXPECT_EQ(ReadSystemFile("/no/such/file"), "");
  const PathMeasure folder = MeasurePath(testing::TempDir());
  EXPECT_EQ(folder.kind, Kind::kDirectory);
  EXPECT_TRUE(folder.readable && folder.writable);
  EXPECT_GT(folder.total_bytes, 0u);
  EXPECT_EQ(MeasurePath("/no/such/path").kind, Kind::kMissing);
  EXPECT_EQ(MeasurePath("/dev/null").kind, Kind::kOther);
}

TEST(ProgramRunTest, EndsAsTheProgramDoes) {
  const ProgramEnd end =
      RunToEnd("/bin/sh", {"-c", "echo first; echo last; echo why >&2; exit 3"},
               absl::Minutes(1));
  EXPECT_TRUE(end.status.ok());
  EXPECT_EQ(end.exit_status, 3);
  EXPECT_EQ(end.last_output, "last");
  EXPECT_EQ(end.last_line, "why");
  EXPECT_EQ(RunToEnd("/bin/sh", {"-c", "kill -KILL $$"}, absl::Minutes(1))
                .exit_status,
            -1);
  EXPECT_FALSE(RunToEnd("/no/such/program", {}, absl::Minutes(1)).status.ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      RunToEnd("/bin/sh", {"-c", "sleep 1000"}, absl::Milliseconds(1)).status));
}

TEST(FindingTest, TextHasEachFindingAndItsRemedy) {
  const std::vector<Finding> findings = {{.name = "disk", .found = "full"},
                                         {.name = "a very long name of a check",
                                          .found = "f\n\x1b[31m",
                                          .verdict = Verdict::kProblem,
                                          .remedy = "df"}};
  EXPECT_EQ(FindingsText(findings),
            "ok       disk             full\n"
            "problem  a very long name of a check f\\n\\x1b[31m\n"
            "                          -> df\n");
  EXPECT_TRUE(HasProblem(findings));
  EXPECT_FALSE(HasProblem({findings[0]}));
}

}  // namespace
}  // namespace roundhouse
