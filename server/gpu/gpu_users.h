// Which processes other than the daemon's use the GPUs, as
// `roundhouse-gpu-probe --processes_but` says once a second.
#ifndef ROUNDHOUSE_SERVER_GPU_GPU_USERS_H_
#define ROUNDHOUSE_SERVER_GPU_GPU_USERS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/wire/gpu_processes.h"
#include "server/gpu/gpu_probe.h"
#include "server/gpu/gpu_watch.h"
#include "server/loop/event_loop.h"

namespace roundhouse {

// FAILED_PRECONDITION: the ids that the driver tells are not this process'.
// They are those of the machine's first namespace of process ids, and this one
// is in another, as a container usually is.  `link`: as the system shows its
// namespace.
absl::Status CheckProcessIds(const std::string& link = "/proc/self/ns/pid");

// One look, on a loop of its own; blocks for as long as the deadline.  Errors
// as GpuProbe::Start's.
absl::StatusOr<std::vector<wire::GpuProcesses>> LookAtGpuUsers(
    const GpuProbeOptions& options);

// Runs on the event loop's thread.
class GpuUsers {
 public:
  using OnLook = std::function<void(const wire::GpuProcesses&)>;

  // Starts at once, as GpuWatch does.
  GpuUsers(EventLoop& loop, std::string program, OnLook on_look,
           absl::Duration restart_delay = absl::Seconds(5));

 private:
  GpuWatch watch_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_GPU_GPU_USERS_H_
