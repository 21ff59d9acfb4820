// Asks NVML for what the daemon wants to know of a machine's GPUs.
//
// It runs in a process of its own (roundhouse-gpu-probe), which the daemon
// kills when it takes too long: a driver whose GPU fell off the bus may never
// answer.
#ifndef ROUNDHOUSE_WORKER_PROBE_PROBE_H_
#define ROUNDHOUSE_WORKER_PROBE_PROBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/wire/gpu_report.h"
#include "worker/probe/nvml.h"

namespace roundhouse::worker {

// Every GPU of the machine, those that cannot be used with their fault.  May
// block for ever; 40 ms a GPU when all is well.  FAILED_PRECONDITION: the
// driver is not loaded, or is not the library's.  INTERNAL: another error of
// NVML that concerns all GPUs.
absl::StatusOr<wire::GpuReport> ProbeGpus(const NvmlFunctions& nvml);

// The driver's text as a report can carry it.
std::string DriverText(const char* text);

// The error of a call of NVML that concerns no single GPU: the same errors.
absl::Status StatusOf(const NvmlFunctions& nvml, const char* call,
                      NvmlResult result);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_PROBE_PROBE_H_
