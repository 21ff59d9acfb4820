// The server that a simulation runs on: devices, their links, host memory.
//
// Rates are bytes per nanosecond, which is GB/s.  Pure values;
// thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_PLAN_MACHINE_H_
#define ROUNDHOUSE_SCHEDULER_PLAN_MACHINE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace roundhouse {

inline constexpr int kMaxSimulatedDevices = 64;
inline constexpr int kMaxSimulatedMicroBatches = 4096;  // of a step

struct SimulatedDevice {
  int64_t memory_bytes = int64_t{24} << 30;
  // Relative to the device that the model's costs were measured on; 0.5 takes
  // twice as long.
  double speed = 1;

  // What takes `ns` at speed 1.
  int64_t RunNs(int64_t ns) const {
    return std::llround(static_cast<double>(ns) / speed);
  }

  friend bool operator==(const SimulatedDevice&,
                         const SimulatedDevice&) = default;
};

struct Machine {
  std::vector<SimulatedDevice> devices;
  double link_rate = 21;   // per device and direction
  double host_rate = 200;  // uploads, downloads and host work together
  // False: host work has that rate to itself, links theirs.
  bool links_share_host_rate = true;
  // What reductions move at most, and updates likewise: the host's threads;
  // 0: as fast as host memory.
  double host_work_rate = 0;

  int device_count() const { return static_cast<int>(devices.size()); }
  double TotalSpeed() const;
  bool equal_devices() const;
  double HostWorkRate() const {
    return host_work_rate > 0 ? std::min(host_work_rate, host_rate) : host_rate;
  }
};

// "24GiB" in bytes, up to 4096; of anything else nothing.
std::optional<int64_t> ParseDeviceMemory(absl::string_view text);

// "8" (24 GiB each), or a list such as "4x24GiB,3x16GiB,1x24GiB@0.5": number,
// memory, speed.  INVALID_ARGUMENT naming the item that is wrong.
absl::StatusOr<std::vector<SimulatedDevice>> ParseDevices(
    absl::string_view text);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_PLAN_MACHINE_H_
