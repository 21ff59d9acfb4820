// What roundhouse-gpu-probe (worker/probe) tells the daemon of a machine's
// GPUs: one text on its stdout, which a person can read too.
//
//   roundhouse-gpus 1
//   driver=580.65.06
//   gpu=0
//   uuid=GPU-5a0f...
//   name=NVIDIA GeForce RTX 4090
//   memory_total_bytes=25757220864
//   peers=0
//   gpu=1
//   fault=GPU is lost
//   end=2
//
// What the driver does not know of a GPU has no line.  The last line, with the
// number of GPUs, shows that nothing is missing.
//
// Pure; thread-compatible.
#ifndef ROUNDHOUSE_BASE_WIRE_GPU_REPORT_H_
#define ROUNDHOUSE_BASE_WIRE_GPU_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace roundhouse::wire {

inline constexpr size_t kMaxGpus = 64;
// The longest text, as long as NVML's longest.
inline constexpr size_t kMaxGpuTextBytes = 96;
// The size of a report with kMaxGpus GPUs and every field.
inline constexpr size_t kMaxGpuReportBytes = 128 * 1024;

struct Gpu {
  uint32_t index = 0;  // the driver's
  // Why it cannot be used ("GPU is lost"); "": it can be.
  std::string fault;
  std::string uuid;  // "GPU-..."; never "" without a fault
  std::string name;  // "NVIDIA GeForce RTX 4090"; never "" without a fault
  std::string pci_bus_id;  // "00000000:01:00.0"; "": not known

  // Not known without a value.
  using Number = std::optional<uint64_t>;
  Number memory_total_bytes;
  Number memory_free_bytes;  // of all processes together
  Number compute_major;      // compute capability
  Number compute_minor;
  Number numa_node;  // the host memory nearest to it
  // Bit i: it reads and writes the memory of the GPU with index i by itself.
  Number peers;
  Number pcie_generation;      // of the link now; idle GPUs lower it
  Number pcie_max_generation;  // that GPU and system can do
  Number pcie_width;           // lanes
  Number pcie_max_width;
  Number pcie_replays;              // since the driver was loaded
  Number pcie_rx_bytes_per_second;  // host to device, over 20 ms
  Number pcie_tx_bytes_per_second;  // device to host
  Number temperature_celsius;
  Number power_milliwatts;
  Number power_limit_milliwatts;
  Number sm_clock_mhz;
  Number utilization_percent;  // of the last second: some kernel ran

  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct GpuReport {
  std::string driver;     // "580.65.06"; "": not known
  std::vector<Gpu> gpus;  // indices rise

  friend bool operator==(const GpuReport&, const GpuReport&) = default;
};

// INVALID_ARGUMENT naming the field: what Decode would refuse.
absl::StatusOr<std::string> Encode(const GpuReport& report);

// INVALID_ARGUMENT naming line and field: another version, a missing, doubled
// or unknown field, a text with other than printable ASCII or too long, a
// number out of its range, a peer that is not in the report, more than
// kMaxGpus, or the end is missing.
absl::StatusOr<GpuReport> DecodeGpuReport(const std::string& text);

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_GPU_REPORT_H_
