#include "worker/probe/probe.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace roundhouse::worker {
namespace {

bool IsFault(NvmlResult result) {
  return result == kNvmlGpuIsLost || result == kNvmlResetRequired;
}

// One GPU's answers.  A function that is not there, or fails, leaves its field
// without a value; a GPU that turns out to be lost keeps that as its fault.
class GpuReader {
 public:
  GpuReader(const NvmlFunctions& nvml, NvmlDevice device, wire::Gpu& gpu)
      : nvml_(nvml), device_(device), gpu_(gpu) {}

  template <typename... Parameters, typename... Values>
  bool Ask(NvmlResult (*function)(NvmlDevice, Parameters...),
           Values... values) {
    if (function == nullptr) return false;
    const NvmlResult result = function(device_, values...);
    if (IsFault(result)) gpu_.fault = DriverText(nvml_.error_string(result));
    return result == kNvmlSuccess;
  }

  // Without it no worker can be given the GPU.
  void Identity(const char* what,
                NvmlResult (*function)(NvmlDevice, char*, unsigned int),
                std::string& value) {
    char text[kNvmlTextBytes] = {};
    if (Ask(function, text, sizeof(text))) value = DriverText(text);
    if (value.empty() && gpu_.fault.empty()) {
      gpu_.fault = absl::StrCat("has no ", what);
    }
  }

  void Count(NvmlResult (*function)(NvmlDevice, unsigned int*),
             wire::Gpu::Number& number) {
    unsigned int value = 0;
    if (Ask(function, &value)) number = value;
  }
  // `which` of what the function knows, times `unit`.
  void Count(NvmlResult (*function)(NvmlDevice, unsigned int, unsigned int*),
             unsigned int which, uint64_t unit, wire::Gpu::Number& number) {
    unsigned int value = 0;
    if (Ask(function, which, &value)) number = value * unit;
  }

 private:
  const NvmlFunctions& nvml_;
  NvmlDevice device_;
  wire::Gpu& gpu_;
};

void ReadHardware(const NvmlFunctions& nvml, GpuReader& reader,
                  wire::Gpu& gpu) {
  reader.Identity("UUID", nvml.device_uuid, gpu.uuid);
  reader.Identity("name", nvml.device_name, gpu.name);
  NvmlPci pci = {};
  if (reader.Ask(nvml.device_pci, &pci))
    gpu.pci_bus_id = DriverText(pci.bus_id);
  NvmlMemory memory = {};
  if (reader.Ask(nvml.device_memory, &memory)) {
    gpu.memory_total_bytes = memory.total;
    gpu.memory_free_bytes = memory.free;
  }
  int major = 0, minor = 0;
  if (reader.Ask(nvml.device_capability, &major, &minor)) {
    gpu.compute_major = major;
    gpu.compute_minor = minor;
  }
  unsigned long nodes = 0;
  if (reader.Ask(nvml.device_memory_affinity, 1u, &nodes, kNvmlAffinityNode) &&
      nodes != 0) {
    gpu.numa_node = static_cast<uint64_t>(std::countr_zero(nodes));
  }
}

void ReadLink(const NvmlFunctions& nvml, GpuReader& reader, wire::Gpu& gpu) {
  reader.Count(nvml.pcie_generation, gpu.pcie_generation);
  reader.Count(nvml.pcie_max_generation, gpu.pcie_max_generation);
  reader.Count(nvml.pcie_width, gpu.pcie_width);
  reader.Count(nvml.pcie_max_width, gpu.pcie_max_width);
  reader.Count(nvml.pcie_replays, gpu.pcie_replays);
  reader.Count(nvml.pcie_throughput, kNvmlPcieRxBytes, 1000,
               gpu.pcie_rx_bytes_per_second);
  reader.Count(nvml.pcie_throughput, kNvmlPcieTxBytes, 1000,
               gpu.pcie_tx_bytes_per_second);
}

void ReadLoad(const NvmlFunctions& nvml, GpuReader& reader, wire::Gpu& gpu) {
  reader.Count(nvml.temperature, kNvmlTemperatureGpu, 1,
               gpu.temperature_celsius);
  reader.Count(nvml.power, gpu.power_milliwatts);
  reader.Count(nvml.power_limit, gpu.power_limit_milliwatts);
  reader.Count(nvml.clock, kNvmlClockSm, 1, gpu.sm_clock_mhz);
  NvmlUtilization utilization = {};
  if (reader.Ask(nvml.utilization, &utilization)) {
    gpu.utilization_percent = utilization.gpu;
  }
}

// A GPU, and its handle if it has one.
struct Probed {
  wire::Gpu gpu;
  NvmlDevice device = nullptr;
};

Probed ProbeGpu(const NvmlFunctions& nvml, unsigned int index) {
  Probed probed;
  wire::Gpu& gpu = probed.gpu;
  gpu.index = index;
  const NvmlResult found = nvml.device_handle(index, &probed.device);
  if (found != kNvmlSuccess) {
    probed.device = nullptr;
    gpu.fault = DriverText(nvml.error_string(found));
    return probed;
  }
  GpuReader reader(nvml, probed.device, gpu);
  ReadHardware(nvml, reader, gpu);
  ReadLink(nvml, reader, gpu);
  ReadLoad(nvml, reader, gpu);
  return probed;
}

// Nothing where the driver does not say.
std::optional<bool> Reaches(const NvmlFunctions& nvml, NvmlDevice from,
                            NvmlDevice to) {
  bool reaches = true;
  for (const unsigned int access : {kNvmlP2pRead, kNvmlP2pWrite}) {
    unsigned int status = 0;
    if (nvml.p2p_status(from, to, access, &status) != kNvmlSuccess) {
      return std::nullopt;
    }
    reaches = reaches && status == kNvmlP2pOk;
  }
  return reaches;
}

// Known of a GPU if the driver says it of any other one; what it does not say
// is not reached.
void ReadPeers(const NvmlFunctions& nvml, std::vector<Probed>& all) {
  if (nvml.p2p_status == nullptr) return;
  for (Probed& from : all) {
    for (const Probed& to : all) {
      if (&from == &to || from.device == nullptr || to.device == nullptr ||
          to.gpu.index >= wire::kMaxGpus) {
        continue;
      }
      const std::optional<bool> reaches = Reaches(nvml, from.device, to.device);
      if (!reaches) continue;
      const uint64_t bit = uint64_t{*reaches} << to.gpu.index;
      from.gpu.peers = from.gpu.peers.value_or(0) | bit;
    }
  }
}

}  // namespace

std::string DriverText(const char* text) {
  std::string printable = text;
  for (char& c : printable) {
    if (c < ' ' || c > '~') c = '?';
  }
  return printable.substr(0, wire::kMaxGpuTextBytes);
}

absl::Status StatusOf(const NvmlFunctions& nvml, const char* call,
                      NvmlResult result) {
  if (result == kNvmlSuccess) return absl::OkStatus();
  const bool unable = result == kNvmlDriverNotLoaded ||
                      result == kNvmlNoPermission ||
                      result == kNvmlVersionMismatch;
  return absl::Status(unable ? absl::StatusCode::kFailedPrecondition
                             : absl::StatusCode::kInternal,
                      absl::StrCat(call, ": ", nvml.error_string(result)));
}

absl::StatusOr<wire::GpuReport> ProbeGpus(const NvmlFunctions& nvml) {
  RETURN_IF_ERROR(StatusOf(nvml, "nvmlInit", nvml.init()));
  unsigned int count = 0;
  RETURN_IF_ERROR(
      StatusOf(nvml, "nvmlDeviceGetCount", nvml.device_count(&count)));
  wire::GpuReport report;
  char driver[kNvmlTextBytes] = {};
  if (nvml.driver_version != nullptr &&
      nvml.driver_version(driver, sizeof(driver)) == kNvmlSuccess) {
    report.driver = DriverText(driver);
  }
  std::vector<Probed> all;
  for (unsigned int i = 0; i < count; ++i) all.push_back(ProbeGpu(nvml, i));
  ReadPeers(nvml, all);
  for (Probed& probed : all) report.gpus.push_back(std::move(probed.gpu));
  return report;
}

}  // namespace roundhouse::worker
