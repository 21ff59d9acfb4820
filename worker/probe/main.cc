// roundhouse-gpu-probe: prints what the NVIDIA driver knows of this machine's
// GPUs (base/wire/gpu_report.h), and ends; with --watch it prints what happens
// to them (base/wire/gpu_event.h) for as long as it can, and with
// --processes_but who uses them (base/wire/gpu_processes.h).  The daemon runs
// all three, the first with a deadline; a person can, too.
//
// Exit status: 0, 1 failed, kUnableExit when this machine has no driver.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/wire/exit_status.h"
#include "base/wire/gpu_report.h"
#include "worker/probe/nvml.h"
#include "worker/probe/probe.h"
#include "worker/probe/processes.h"
#include "worker/probe/watch.h"

ABSL_FLAG(std::string, library, "libnvidia-ml.so.1", "the driver's NVML");
ABSL_FLAG(bool, watch, false, "print Xid errors as they happen");
ABSL_FLAG(int, processes_but, 0,
          "print once a second the processes on each GPU that do not descend "
          "from this one");
ABSL_FLAG(int, looks, 0, "with --processes_but: end after so many; 0: go on");

namespace roundhouse::worker {
namespace {

absl::Status Print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    return absl::InternalError(absl::StrCat("stdout: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status Run() {
  // The daemon that waits for it may die.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return absl::InternalError(
        absl::StrCat("PR_SET_PDEATHSIG: ", std::strerror(errno)));
  }
  ASSIGN_OR_RETURN(const NvmlFunctions nvml,
                   OpenNvml(absl::GetFlag(FLAGS_library)));
  const auto print_line = [](const std::string& line) {
    return Print(absl::StrCat(line, "\n"));
  };
  if (absl::GetFlag(FLAGS_watch)) return WatchGpus(nvml, print_line);
  if (const int but = absl::GetFlag(FLAGS_processes_but); but != 0) {
    return WatchProcesses(
        nvml, {.but = but, .looks = absl::GetFlag(FLAGS_looks)}, print_line);
  }
  ASSIGN_OR_RETURN(const wire::GpuReport report, ProbeGpus(nvml));
  ASSIGN_OR_RETURN(const std::string text, wire::Encode(report));
  return Print(text);
}

}  // namespace
}  // namespace roundhouse::worker

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = roundhouse::worker::Run();
  if (!status.ok()) {
    std::fprintf(stderr, "roundhouse-gpu-probe: %s\n",
                 std::string(status.message()).c_str());
  }
  // Past the driver's destructors: one that hangs must not hold the report.
  if (status.ok()) _exit(0);
  _exit(absl::IsFailedPrecondition(status) ? roundhouse::wire::kUnableExit : 1);
}
