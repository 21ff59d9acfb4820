// What every worker program is around its roles: the flags that the daemon
// gives it, the descriptors it inherits, its life with the daemon.
//
//   int main(int argc, char** argv) {
//     return RunWorkerProgram(argc, argv, [](role, context) { ... });
//   }
#ifndef ROUNDHOUSE_WORKER_PROGRAM_H_
#define ROUNDHOUSE_WORKER_PROGRAM_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/context.h"

namespace roundhouse::worker {

// Runs a role ("device", "host", "files") until Stop or until the daemon is
// gone; INVALID_ARGUMENT for a role that the program does not have.
using RunRole = std::function<absl::Status(const std::string& role,
                                           const WorkerContext& context)>;

// Parses the flags (dashes in their names are underscores), arms the kill
// point, maps the arena, and runs the role.  From then on the kernel kills this
// process with its daemon.  Returns the exit status: 0 after Stop or when the
// daemon is gone, 1 after an error, which is logged; kUnableExit
// (base/wire/exit_status.h) after FAILED_PRECONDITION or UNIMPLEMENTED.  With
// --role=nursery it returns once in each process that is forked from this one,
// too (worker/nursery.h).
int RunWorkerProgram(int argc, char** argv, const RunRole& run);

// What the daemon says to a device worker.
struct DeviceFlags {
  std::string device;  // what computes: worker/device/open_device.h
  uint64_t memory_bytes = 0;
  double link_gbps = 0;  // per direction, 10^9 bits per second; 0: no throttle
  uint64_t copy_chunk_bytes = 0;
  bool peers = false;  // it exchanges sums with other devices
};

// After the flags were parsed.
DeviceFlags GetDeviceFlags();

// INVALID_ARGUMENT naming the role: none of the three.
absl::Status UnknownRole(const std::string& role);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_PROGRAM_H_
