// What `roundhouse-gpu-probe --processes_but=PID` (worker/probe) tells the
// daemon of the processes on each GPU, a line a GPU and second on its stdout,
// which a person can read too:
//
//   roundhouse-gpu-processes 1
//   GPU-5a0f... 25757220864 812,graphics,52428800,-,0,Xorg
//   4711,compute,-,35,1000,python3 GPU-77aa... unknown Not Supported
//
// A process is its id, how it uses the GPU, its bytes of the GPU's memory, the
// share of the GPU's time in per cent, its user and its name; what is not known
// is "-".  Those of the daemon are left out.
//
// Pure; thread-compatible.
#ifndef ROUNDHOUSE_BASE_WIRE_GPU_PROCESSES_H_
#define ROUNDHOUSE_BASE_WIRE_GPU_PROCESSES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace roundhouse::wire {

inline constexpr char kGpuProcessesBegin[] = "roundhouse-gpu-processes 1";
// On one GPU; the probe tells of those that use it most.
inline constexpr size_t kMaxGpuProcesses = 64;
inline constexpr size_t kMaxGpuProcessesBytes = 8192;  // of a line
inline constexpr size_t kMaxProcessNameBytes = 15;     // the kernel's limit
inline constexpr size_t kMaxGpuWordsBytes = 96;        // a uuid, a fault

struct GpuProcess {
  uint32_t pid = 0;  // from 1 on
  // It has a context for computing; others only draw.
  bool compute = false;
  std::optional<uint64_t> memory_bytes;
  // In the time since the last look; nullopt: the driver does not say.
  std::optional<uint32_t> busy_percent;
  std::optional<uint32_t> uid;
  std::string name;  // NameOfProcess's; "": not known

  friend bool operator==(const GpuProcess&, const GpuProcess&) = default;
};

struct GpuProcesses {
  std::string uuid;   // printable ASCII without spaces
  std::string fault;  // why processes are not known, printable; "": they are
  std::optional<uint64_t> memory_bytes;  // the GPU's
  std::vector<GpuProcess> processes;     // pids rise

  friend bool operator==(const GpuProcesses&, const GpuProcesses&) = default;
};

// `name` as a line can have it: cut, other characters than letters, digits and
// a few signs replaced.
std::string NameOfProcess(absl::string_view name);

// A line, without its end.  REQUIRES: as the fields say.
std::string EncodeGpuProcesses(const GpuProcesses& processes);

// INVALID_ARGUMENT: Encode writes no such line.
absl::StatusOr<GpuProcesses> DecodeGpuProcesses(absl::string_view line);

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_GPU_PROCESSES_H_
