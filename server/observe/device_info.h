// What is told of a device.  Plain values.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_DEVICE_INFO_H_
#define ROUNDHOUSE_SERVER_OBSERVE_DEVICE_INFO_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace roundhouse {

// Taken out: others have it (server/devices), and its worker has ended.
enum class DeviceState { kStarting, kUp, kLost, kTakenOut };

// Times and bytes count from the daemon's start.
struct DeviceInfo {
  int index = 0;
  std::string kind;  // "cpu", "cuda"
  DeviceState state = DeviceState::kStarting;
  int64_t memory_limit_bytes = 0;
  int64_t memory_used_bytes = 0;
  int threads = 0;
  int worker_pid = 0;
  int worker_restarts = 0;
  std::string job_id;  // the running slot's; "": none
  double compute_seconds = 0;
  double bubble_seconds = 0;
  double idle_seconds = 0;
  double fenced_seconds = 0;
  double filled_bubble_seconds = 0;
  std::vector<std::pair<std::string, double>> bubble_causes;  // seconds
  int64_t h2d_bytes = 0;
  int64_t d2h_bytes = 0;
  int64_t slots = 0;
  std::string product_name;  // of a GPU
  std::string uuid;          // of a GPU
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_DEVICE_INFO_H_
