#include "server/doctor/doctor.h"

#include <pwd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/arena/arena_placement.h"
#include "server/doctor/file_checks.h"
#include "server/doctor/machine_checks.h"
#include "server/doctor/program_run.h"
#include "server/gpu/gpu_probe.h"

namespace roundhouse {
namespace {

Looker ThisProcess() {
  Looker looker = {.uid = geteuid(), .name = absl::StrCat(geteuid())};
  std::array<char, 4096> room;
  passwd entry = {};
  passwd* found = nullptr;
  if (getpwuid_r(looker.uid, &entry, room.data(), room.size(), &found) == 0 &&
      found != nullptr) {
    looker.name = entry.pw_name;
  }
  return looker;
}

std::string ParentOf(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

// The nearest folder above `path` that is there: directories are made with
// those above them.
PathMeasure NearestParent(const std::string& path) {
  std::string parent = ParentOf(path);
  PathMeasure found = MeasurePath(parent);
  while (found.kind == PathMeasure::Kind::kMissing && parent.size() > 1) {
    parent = ParentOf(parent);
    found = MeasurePath(parent);
  }
  return found;
}

void ExamineMachine(const ExamineOptions& options,
                    std::vector<Finding>* findings) {
  const MemoryMeasure memory = ParseMemory(ReadSystemFile("/proc/meminfo"));
  findings->push_back(CheckKernel(KernelRelease()));
  findings->push_back(CheckMemory(memory, options.host_memory_bytes));
  findings->push_back(CheckSwap(memory));
  findings->push_back(CheckMemoryLock(
      SoftLimit(RLIMIT_MEMLOCK), options.host_memory_bytes, options.devices));
  findings->push_back(CheckHugePages(
      std::string(absl::StripAsciiWhitespace(ReadSystemFile(kSharedHugePages))),
      options.host_memory_bytes));
  findings->push_back(CheckClock(MeasureClock()));
}

void ExamineGpus(const ExamineOptions& options,
                 std::vector<Finding>* findings) {
  const auto report = ProbeGpusNow({options.gpu_probe, kExamineLimit});
  findings->push_back(CheckGpus(report, options.devices));
  if (report.ok() && !report->gpus.empty()) {
    findings->push_back(CheckPcieLinks(*report));
  }
}

void ExamineProcesses(const ExamineOptions& options,
                      std::vector<Finding>* findings) {
  const auto run = [](const std::string& program,
                      const std::vector<std::string>& arguments) {
    return RunToEnd(program, arguments, kExamineLimit);
  };
  findings->push_back(CheckLibtorch(
      options.worker_program, run(options.worker_program, {"--version"})));
  findings->push_back(CheckPython(
      options.python, run(options.python, {"-I", "-B", "-c", kHelperModules})));
  findings->push_back(CheckDatasetHelper(
      options.prepare_script,
      run(options.python, {"-B", options.prepare_script, "--help"})));
  findings->push_back(CheckDescriptors(HardLimit(RLIMIT_NOFILE)));
  findings->push_back(CheckRealtime(
      options.realtime,
      MayBeRealtime() ? RealtimeRight::kPermitted : RealtimeRight::kRefused));
}

void ExamineFiles(const ExamineOptions& options,
                  std::vector<Finding>* findings) {
  const Looker looker = ThisProcess();
  const std::string& state = options.state_dir;
  const PathMeasure found = MeasurePath(state);
  const PathMeasure parent = NearestParent(state);
  findings->push_back(CheckStateDirectory(state, found, parent, looker));
  findings->push_back(CheckDisk(
      state, found.kind == PathMeasure::Kind::kDirectory ? found : parent,
      MeasurePath(state + "/reserve")));
  if (!options.socket_path.empty()) {
    const std::string folder = ParentOf(options.socket_path);
    findings->push_back(CheckSocketFolder(folder, MeasurePath(folder),
                                          NearestParent(folder), looker));
  }
  const size_t roots = std::min(options.data_roots.size(), kMostRootsExamined);
  for (size_t i = 0; i < roots; ++i) {
    const std::string& root = options.data_roots[i];
    findings->push_back(CheckDataRoot(root, MeasurePath(root), looker));
  }
}

}  // namespace

std::vector<Finding> Examine(const ExamineOptions& options) {
  std::vector<Finding> findings;
  ExamineMachine(options, &findings);
  ExamineGpus(options, &findings);
  ExamineProcesses(options, &findings);
  ExamineFiles(options, &findings);
  return findings;
}

Doctor::Doctor(std::function<std::vector<Finding>()> examine)
    : examine_(std::move(examine)) {}

absl::StatusOr<std::vector<Finding>> Doctor::Diagnose() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(busy_, true)) {
      return absl::UnavailableError(
          "another diagnosis runs; try again in a minute");
    }
  }
  const absl::Cleanup done = [this] {
    MutexLock lock(mutex_);
    busy_ = false;
  };
  return examine_();
}

}  // namespace roundhouse
