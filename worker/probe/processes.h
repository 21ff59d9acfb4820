// Which processes use the GPUs, other than those of the daemon, as the driver
// tells of it once a second.
//
// In a process of its own (`roundhouse-gpu-probe --processes_but=PID`), since
// any call of the driver may never return.
#ifndef ROUNDHOUSE_WORKER_PROBE_PROCESSES_H_
#define ROUNDHOUSE_WORKER_PROBE_PROCESSES_H_

#include <sys/types.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "worker/probe/nvml.h"

namespace roundhouse::worker {

struct ProcessWatchOptions {
  pid_t but = 0;  // the daemon: it and what descends from it are left out
  int looks = 0;  // 0: until something fails
};

// Writes base/wire/gpu_processes.h's lines, one a call and without its end.
// GPUs that cannot be asked for their name have none.  FAILED_PRECONDITION: the
// driver is not loaded, is not the library's, or tells of no processes.
// INTERNAL: another error of NVML that concerns all GPUs, or no GPU answers.
// What `write` returns if that is not OK.
absl::Status WatchProcesses(
    const NvmlFunctions& nvml, const ProcessWatchOptions& options,
    const std::function<absl::Status(const std::string& line)>& write);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_PROBE_PROCESSES_H_
