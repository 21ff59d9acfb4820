// The part of NVML, NVIDIA's management library, that the probe uses, declared
// by us, since neither the build nor most machines have its header: functions
// and structs as in nvml.h of CUDA 13.0 (nvml_header_test compares them where
// the CUDA wheels are).
//
// Any function may block for as long as the driver does.
#ifndef ROUNDHOUSE_WORKER_PROBE_NVML_H_
#define ROUNDHOUSE_WORKER_PROBE_NVML_H_

#include <string>

#include "absl/status/statusor.h"

namespace roundhouse::worker {

struct NvmlDeviceRecord;
using NvmlDevice = NvmlDeviceRecord*;
struct NvmlEventSetRecord;
using NvmlEventSet = NvmlEventSetRecord*;
using NvmlResult = unsigned int;

inline constexpr NvmlResult kNvmlSuccess = 0;
inline constexpr NvmlResult kNvmlNotSupported = 3;
inline constexpr NvmlResult kNvmlNoPermission = 4;
inline constexpr NvmlResult kNvmlNotFound = 6;
inline constexpr NvmlResult kNvmlInsufficientSize = 7;
inline constexpr NvmlResult kNvmlDriverNotLoaded = 9;
inline constexpr NvmlResult kNvmlTimeout = 10;
inline constexpr NvmlResult kNvmlGpuIsLost = 15;
inline constexpr NvmlResult kNvmlResetRequired = 16;
inline constexpr NvmlResult kNvmlVersionMismatch = 18;

inline constexpr unsigned int kNvmlTemperatureGpu = 0;
inline constexpr unsigned int kNvmlClockSm = 1;
inline constexpr unsigned int kNvmlPcieTxBytes = 0;
inline constexpr unsigned int kNvmlPcieRxBytes = 1;
inline constexpr unsigned int kNvmlAffinityNode = 0;
inline constexpr unsigned int kNvmlP2pRead = 0;
inline constexpr unsigned int kNvmlP2pWrite = 1;
inline constexpr unsigned int kNvmlP2pOk = 0;
inline constexpr unsigned long long kNvmlXidEvent = 8;
// With the zero byte at the end; of UUIDs, names and driver versions.
inline constexpr unsigned int kNvmlTextBytes = 96;

struct NvmlMemory {
  unsigned long long total;  // bytes
  unsigned long long free;
  unsigned long long used;
};

struct NvmlUtilization {
  unsigned int gpu;  // per cent
  unsigned int memory;
};

struct NvmlPci {
  char legacy_bus_id[16];
  unsigned int domain;
  unsigned int bus;
  unsigned int device;
  unsigned int device_id;
  unsigned int subsystem_id;
  char bus_id[32];
};

struct NvmlEvent {
  NvmlDevice device;
  unsigned long long type;
  unsigned long long data;  // of kNvmlXidEvent the Xid
  unsigned int gpu_instance;
  unsigned int compute_instance;
};

struct NvmlProcess {
  unsigned int pid;
  unsigned long long memory;  // bytes; all ones: not known
  unsigned int gpu_instance;
  unsigned int compute_instance;
};

// What one process did in a sampling period.
struct NvmlProcessUse {
  unsigned int pid;
  unsigned long long time;  // microseconds
  unsigned int sm;          // per cent, as all of them
  unsigned int memory;
  unsigned int encoder;
  unsigned int decoder;
};

// A function that the library lacks is null; the first six never are.
struct NvmlFunctions {
  NvmlResult (*init)();
  const char* (*error_string)(NvmlResult);
  NvmlResult (*device_count)(unsigned int* count);
  NvmlResult (*device_handle)(unsigned int index, NvmlDevice*);
  NvmlResult (*device_uuid)(NvmlDevice, char*, unsigned int bytes);
  NvmlResult (*device_name)(NvmlDevice, char*, unsigned int bytes);

  NvmlResult (*driver_version)(char*, unsigned int bytes);
  NvmlResult (*device_pci)(NvmlDevice, NvmlPci*);
  NvmlResult (*device_memory)(NvmlDevice, NvmlMemory*);
  NvmlResult (*device_capability)(NvmlDevice, int* major, int* minor);
  NvmlResult (*device_memory_affinity)(NvmlDevice, unsigned int words,
                                       unsigned long* nodes,
                                       unsigned int scope);
  NvmlResult (*p2p_status)(NvmlDevice from, NvmlDevice to, unsigned int access,
                           unsigned int* status);
  NvmlResult (*pcie_generation)(NvmlDevice, unsigned int*);
  NvmlResult (*pcie_max_generation)(NvmlDevice, unsigned int*);
  NvmlResult (*pcie_width)(NvmlDevice, unsigned int* lanes);
  NvmlResult (*pcie_max_width)(NvmlDevice, unsigned int* lanes);
  NvmlResult (*pcie_replays)(NvmlDevice, unsigned int*);
  NvmlResult (*pcie_throughput)(NvmlDevice, unsigned int counter,
                                unsigned int* kilobytes_per_second);
  NvmlResult (*temperature)(NvmlDevice, unsigned int sensor,
                            unsigned int* celsius);
  NvmlResult (*power)(NvmlDevice, unsigned int* milliwatts);
  NvmlResult (*power_limit)(NvmlDevice, unsigned int* milliwatts);
  NvmlResult (*clock)(NvmlDevice, unsigned int type, unsigned int* mhz);
  NvmlResult (*utilization)(NvmlDevice, NvmlUtilization*);

  // `count`: the room, then how many there are.
  NvmlResult (*compute_processes)(NvmlDevice, unsigned int* count,
                                  NvmlProcess*);
  NvmlResult (*graphics_processes)(NvmlDevice, unsigned int* count,
                                   NvmlProcess*);
  NvmlResult (*process_use)(NvmlDevice, NvmlProcessUse*, unsigned int* count,
                            unsigned long long later_than);

  NvmlResult (*event_set)(NvmlEventSet*);
  NvmlResult (*register_events)(NvmlDevice, unsigned long long types,
                                NvmlEventSet);
  NvmlResult (*wait_for_event)(NvmlEventSet, NvmlEvent*,
                               unsigned int milliseconds);
};

// Loads the library, which stays.  FAILED_PRECONDITION: there is none, or it
// lacks what every driver's has.
absl::StatusOr<NvmlFunctions> OpenNvml(const std::string& path);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_PROBE_NVML_H_
