#include "worker/probe/watch.h"

#include <unistd.h>

#include <map>

#include "base/status.h"
#include "base/wire/gpu_event.h"
#include "worker/probe/probe.h"

namespace roundhouse::worker {
namespace {

// Of one wait; events end it sooner.
constexpr unsigned int kWaitMs = 10'000;
// While a GPU is lost NVML answers at once, with that, whatever else happens.
constexpr unsigned int kLostPauseSeconds = 1;

// UUIDs of the GPUs whose events are recorded.  One that is lost, or cannot,
// has none.
absl::StatusOr<std::map<NvmlDevice, std::string>> Register(
    const NvmlFunctions& nvml, NvmlEventSet set) {
  unsigned int count = 0;
  RETURN_IF_ERROR(
      StatusOf(nvml, "nvmlDeviceGetCount", nvml.device_count(&count)));
  std::map<NvmlDevice, std::string> uuids;
  for (unsigned int i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    char uuid[kNvmlTextBytes] = {};
    if (nvml.device_handle(i, &device) != kNvmlSuccess ||
        nvml.device_uuid(device, uuid, sizeof(uuid)) != kNvmlSuccess ||
        nvml.register_events(device, kNvmlXidEvent, set) != kNvmlSuccess) {
      continue;
    }
    uuids[device] = uuid;
  }
  if (uuids.empty()) {
    return absl::FailedPreconditionError(
        "the driver tells of no GPU's Xid errors");
  }
  return uuids;
}

}  // namespace

absl::Status WatchGpus(
    const NvmlFunctions& nvml,
    const std::function<absl::Status(const std::string& line)>& write) {
  if (nvml.event_set == nullptr || nvml.register_events == nullptr ||
      nvml.wait_for_event == nullptr) {
    return absl::FailedPreconditionError("the driver's NVML has no events");
  }
  RETURN_IF_ERROR(StatusOf(nvml, "nvmlInit", nvml.init()));
  NvmlEventSet set = nullptr;
  RETURN_IF_ERROR(StatusOf(nvml, "nvmlEventSetCreate", nvml.event_set(&set)));
  ASSIGN_OR_RETURN(const auto uuids, Register(nvml, set));
  RETURN_IF_ERROR(write(wire::kGpuEventsBegin));
  while (true) {
    NvmlEvent event = {};
    const NvmlResult result = nvml.wait_for_event(set, &event, kWaitMs);
    if (result == kNvmlTimeout) continue;
    if (result == kNvmlGpuIsLost) {
      sleep(kLostPauseSeconds);
      continue;
    }
    RETURN_IF_ERROR(StatusOf(nvml, "nvmlEventSetWait", result));
    const auto found = uuids.find(event.device);
    if (event.type != kNvmlXidEvent || found == uuids.end()) continue;
    RETURN_IF_ERROR(write(wire::EncodeGpuEvent(
        {found->second, static_cast<uint32_t>(event.data)})));
  }
}

}  // namespace roundhouse::worker
