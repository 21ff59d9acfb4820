// --yield=auto: devices are left to processes of others on their GPUs by
// themselves (server/devices/device_yields.h).
#ifndef ROUNDHOUSE_SERVER_YIELDING_H_
#define ROUNDHOUSE_SERVER_YIELDING_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/wire/gpu_processes.h"
#include "base/wire/gpu_report.h"
#include "server/daemon_options.h"
#include "server/devices/device_keeper.h"
#include "server/devices/device_loans.h"
#include "server/devices/device_yields.h"
#include "server/gpu/gpu_users.h"
#include "server/loop/event_loop.h"

namespace roundhouse {

class Yielding {
 public:
  // Looks once, so that a device that is to be left to somebody gets no worker
  // first; blocks for as long as the driver may.  A driver that tells nothing
  // is a warning.  FAILED_PRECONDITION: it is asked for where process ids can't
  // be told apart.  Without --yield=auto, or GPUs, nothing is done.
  static absl::StatusOr<std::unique_ptr<Yielding>> Create(
      const DaemonOptions& options);

  // Adds the uuids of the GPUs that somebody has now.
  void AddTaken(std::set<std::string>& uuids) const;

  // Takes devices out as of the first look, and goes on looking.  Before the
  // pool starts; all outlive it.  Loop thread.
  void Begin(EventLoop& loop, const std::vector<wire::Gpu>& gpus,
             DeviceLoans& loans, DeviceKeeper& keeper);

 private:
  explicit Yielding(const DaemonOptions& options);

  const bool enabled_;
  const absl::Duration back_after_;
  const GpuProbeOptions probe_;
  std::vector<wire::GpuProcesses> first_look_;
  std::unique_ptr<DeviceYields> yields_;
  std::unique_ptr<GpuUsers> users_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_YIELDING_H_
