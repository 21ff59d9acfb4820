#include "worker/probe/watch.h"

#include <map>

#include "base/status.h"
#include "base/wire/gpu_event.h"
#include "worker/probe/probe.h"

namespace roundhouse::worker {
namespace {

// The longest wait; events end it sooner.
constexpr unsigned int kWaitMs = 10'000;

// A GPU that is lost has no events; the others have.
bool IsOfOneGpu(NvmlResult result) {
  return result == kNvmlNotSupported || result == kNvmlGpuIsLost ||
         result == kNvmlResetRequired;
}

// UUIDs of the GPUs whose events are recorded.
absl::StatusOr<std::map<NvmlDevice, std::string>> Register(
    const NvmlFunctions& nvml, NvmlEventSet set) {
  unsigned int count = 0;
  RETURN_IF_ERROR(
      StatusOf(nvml, "nvmlDeviceGetCount", nvml.device_count(&count)));
  std::map<NvmlDevice, std::string> uuids;
  bool any_can = false;
  for (unsigned int i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    char uuid[kNvmlTextBytes] = {};
    NvmlResult result = nvml.device_handle(i, &device);
    if (result == kNvmlSuccess) {
      result = nvml.device_uuid(device, uuid, sizeof(uuid));
    }
    if (result == kNvmlSuccess) {
      result = nvml.register_events(device, kNvmlXidEvent, set);
    }
    any_can = any_can || result != kNvmlNotSupported;
    if (IsOfOneGpu(result)) continue;
    // After an unknown error the set must not be used any more.
    RETURN_IF_ERROR(StatusOf(nvml, "nvmlDeviceRegisterEvents", result));
    uuids[device] = uuid;
  }
  if (!uuids.empty()) return uuids;
  return absl::Status(any_can ? absl::StatusCode::kInternal
                              : absl::StatusCode::kFailedPrecondition,
                      "the driver tells of no GPU's Xid errors");
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
    // Also that some GPU is lost: who starts this again watches the others.
    RETURN_IF_ERROR(StatusOf(nvml, "nvmlEventSetWait", result));
    const auto found = uuids.find(event.device);
    if (event.type != kNvmlXidEvent || found == uuids.end()) continue;
    RETURN_IF_ERROR(write(wire::EncodeGpuEvent(
        {found->second, static_cast<uint32_t>(event.data)})));
  }
}

}  // namespace roundhouse::worker
