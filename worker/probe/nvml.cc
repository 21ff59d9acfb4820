#include "worker/probe/nvml.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace roundhouse::worker {
namespace {

class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename Function>
  void Find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
  }
  template <typename Function>
  void Require(const char* name, Function& function) {
    Find(name, function);
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  // The first of those required; "": none.
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace

absl::StatusOr<NvmlFunctions> OpenNvml(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("no NVIDIA driver: ", dlerror()));
  }
  NvmlFunctions f;
  Symbols symbols(library);
  symbols.Require("nvmlInit_v2", f.init);
  symbols.Require("nvmlErrorString", f.error_string);
  symbols.Require("nvmlDeviceGetCount_v2", f.device_count);
  symbols.Require("nvmlDeviceGetHandleByIndex_v2", f.device_handle);
  symbols.Require("nvmlDeviceGetUUID", f.device_uuid);
  symbols.Require("nvmlDeviceGetName", f.device_name);
  symbols.Find("nvmlSystemGetDriverVersion", f.driver_version);
  symbols.Find("nvmlDeviceGetPciInfo_v3", f.device_pci);
  symbols.Find("nvmlDeviceGetMemoryInfo", f.device_memory);
  symbols.Find("nvmlDeviceGetCudaComputeCapability", f.device_capability);
  symbols.Find("nvmlDeviceGetMemoryAffinity", f.device_memory_affinity);
  symbols.Find("nvmlDeviceGetP2PStatus", f.p2p_status);
  symbols.Find("nvmlDeviceGetCurrPcieLinkGeneration", f.pcie_generation);
  symbols.Find("nvmlDeviceGetMaxPcieLinkGeneration", f.pcie_max_generation);
  symbols.Find("nvmlDeviceGetCurrPcieLinkWidth", f.pcie_width);
  symbols.Find("nvmlDeviceGetMaxPcieLinkWidth", f.pcie_max_width);
  symbols.Find("nvmlDeviceGetPcieReplayCounter", f.pcie_replays);
  symbols.Find("nvmlDeviceGetPcieThroughput", f.pcie_throughput);
  symbols.Find("nvmlDeviceGetTemperature", f.temperature);
  symbols.Find("nvmlDeviceGetPowerUsage", f.power);
  symbols.Find("nvmlDeviceGetEnforcedPowerLimit", f.power_limit);
  symbols.Find("nvmlDeviceGetClockInfo", f.clock);
  symbols.Find("nvmlDeviceGetUtilizationRates", f.utilization);
  symbols.Find("nvmlDeviceGetComputeRunningProcesses_v3", f.compute_processes);
  symbols.Find("nvmlDeviceGetGraphicsRunningProcesses_v3",
               f.graphics_processes);
  symbols.Find("nvmlDeviceGetProcessUtilization", f.process_use);
  symbols.Find("nvmlEventSetCreate", f.event_set);
  symbols.Find("nvmlDeviceRegisterEvents", f.register_events);
  symbols.Find("nvmlEventSetWait_v2", f.wait_for_event);
  if (!symbols.missing().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not NVML: it lacks ", symbols.missing()));
  }
  return f;
}

}  // namespace roundhouse::worker
