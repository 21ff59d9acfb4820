// Waits for what the driver tells of its GPUs as it happens: Xid errors.
//
// In a process of its own (`roundhouse-gpu-probe --watch`), since any call may
// never return.
#ifndef ROUNDHOUSE_WORKER_PROBE_WATCH_H_
#define ROUNDHOUSE_WORKER_PROBE_WATCH_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "worker/probe/nvml.h"

namespace roundhouse::worker {

// Writes base/wire/gpu_event.h's lines, one a call and without its end, until
// something fails; never OK.  FAILED_PRECONDITION: the driver is not loaded, is
// not the library's, or supports it for no GPU.  INTERNAL: another error of
// NVML, a GPU that is lost among them: those that are not may be watched anew.
// What `write` returns if that is not OK.
absl::Status WatchGpus(
    const NvmlFunctions& nvml,
    const std::function<absl::Status(const std::string& line)>& write);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_PROBE_WATCH_H_
