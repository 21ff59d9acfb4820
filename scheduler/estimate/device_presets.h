// Devices that can be planned for without being there: what their vendor says
// of them, each number with its source.
//
// Pure values and functions; thread-safe.
#ifndef ROUNDHOUSE_SCHEDULER_ESTIMATE_DEVICE_PRESETS_H_
#define ROUNDHOUSE_SCHEDULER_ESTIMATE_DEVICE_PRESETS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace roundhouse {

struct DevicePreset {
  const char* name;    // "rtx4090"
  const char* source;  // of memory and rates
  int64_t memory_bytes;
  // Dense tensor operations of 16-bit numbers, 10^12 FLOP/s.  GeForce cards
  // accumulate in fp32 at half the rate at which they do in fp16.
  double fp32_accumulate_tflops;
  double fp16_accumulate_tflops;
  double link_rate;  // GB/s each way, as reached (kPcie4LinkRate)

  friend bool operator==(const DevicePreset&, const DevicePreset&) = default;
};

// In order of their names' generations.
const std::vector<DevicePreset>& DevicePresets();
// Null where there is none of that name.
const DevicePreset* FindPreset(absl::string_view name);
// "rtx3090, rtx4090, ...".
std::string PresetNames();

inline constexpr int kMaxPlannedDevices = 64;

// "8xrtx4090", "rtx4090", or a list "4xrtx4090,4xrtx3090": one entry a device.
// "8xh100:24GiB" are devices of another memory.
// INVALID_ARGUMENT naming the item that is wrong; what gives memory but no
// speed ("8x24GiB") is told which presets there are.
absl::StatusOr<std::vector<DevicePreset>> ParsePresets(absl::string_view text);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_ESTIMATE_DEVICE_PRESETS_H_
