#include "scheduler/plan/machine.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr double kMaxGib = 4096;
constexpr double kLeastSpeed = 0.01;
constexpr double kMostSpeed = 100;

absl::Status BadItem(absl::string_view item) {
  return absl::InvalidArgumentError(absl::StrCat(
      "devices \"", item, "\": expected NUMBERxMEMORYGiB[@SPEED] with 1 to ",
      kMaxSimulatedDevices, " devices, up to ", kMaxGib, " GiB, speed ",
      kLeastSpeed, " to ", kMostSpeed));
}

// "24GiB@0.5".
absl::StatusOr<SimulatedDevice> ParseDevice(absl::string_view item,
                                            absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '@');
  const std::optional<int64_t> memory_bytes = ParseDeviceMemory(parts[0]);
  if (parts.size() > 2 || !memory_bytes.has_value()) return BadItem(item);
  SimulatedDevice device;
  device.memory_bytes = *memory_bytes;
  if (parts.size() == 2 &&
      (!absl::SimpleAtod(parts[1], &device.speed) ||
       !(device.speed >= kLeastSpeed && device.speed <= kMostSpeed))) {
    return BadItem(item);
  }
  return device;
}

}  // namespace

bool Machine::equal_devices() const {
  return std::all_of(
      devices.begin(), devices.end(),
      [this](const SimulatedDevice& device) { return device == devices[0]; });
}

double Machine::TotalSpeed() const {
  double total = 0;
  for (const SimulatedDevice& device : devices) total += device.speed;
  return total;
}

std::optional<int64_t> ParseDeviceMemory(absl::string_view text) {
  double gib = 0;
  if (!absl::ConsumeSuffix(&text, "GiB") || !absl::SimpleAtod(text, &gib) ||
      !(gib > 0 && gib <= kMaxGib)) {
    return std::nullopt;
  }
  return std::llround(std::ldexp(gib, 30));
}

absl::StatusOr<std::vector<SimulatedDevice>> ParseDevices(
    absl::string_view text) {
  std::vector<SimulatedDevice> devices;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> parts =
        absl::StrSplit(item, absl::MaxSplits('x', 1));
    int count = 0;
    if (!absl::SimpleAtoi(parts[0], &count) || count < 1 ||
        count + devices.size() > kMaxSimulatedDevices) {
      return BadItem(item);
    }
    SimulatedDevice device;
    if (parts.size() == 2) {
      ASSIGN_OR_RETURN(device, ParseDevice(item, parts[1]));
    }
    devices.insert(devices.end(), count, device);
  }
  return devices;
}

}  // namespace roundhouse
