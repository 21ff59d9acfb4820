// Our declarations of NVML beside those of nvml.h, from the CUDA wheels.  What
// differs does not compile.
#include <nvml.h>

#include <cstddef>
#include <type_traits>

#include "gtest/gtest.h"
#include "worker/probe/nvml.h"

// nvmlDeviceGetTemperature is deprecated since 13.0 and in all drivers.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace roundhouse::worker {
namespace {

// What a pointer is to; of a handle nobody knows.
template <typename T>
using Pointee = std::conditional_t<
    std::is_pointer_v<T> && !std::is_same_v<T, nvmlDevice_t> &&
        !std::is_same_v<T, NvmlDevice> && !std::is_same_v<T, nvmlEventSet_t> &&
        !std::is_same_v<T, NvmlEventSet>,
    std::remove_pointer_t<T>, char>;

// A pointer may be to another struct (compared below), an enum's value another
// type of its size.
template <typename Theirs, typename Ours>
constexpr bool kSameValue = std::is_pointer_v<Theirs> ==
                                std::is_pointer_v<Ours> &&
                            sizeof(Theirs) == sizeof(Ours) &&
                            sizeof(Pointee<Theirs>) == sizeof(Pointee<Ours>);

template <typename Theirs, typename Ours>
constexpr bool kSame = false;
template <typename R, typename... P, typename OurR, typename... OurP>
constexpr bool kSame<R(P...), OurR (*)(OurP...)> = kSameValue<R, OurR> &&
                                                   (kSameValue<P, OurP> && ...);

#define SAME(theirs, ours) \
  static_assert(kSame<decltype(::theirs), decltype(NvmlFunctions::ours)>)

SAME(nvmlInit_v2, init);
SAME(nvmlErrorString, error_string);
SAME(nvmlDeviceGetCount_v2, device_count);
SAME(nvmlDeviceGetHandleByIndex_v2, device_handle);
SAME(nvmlDeviceGetUUID, device_uuid);
SAME(nvmlDeviceGetName, device_name);
SAME(nvmlSystemGetDriverVersion, driver_version);
SAME(nvmlDeviceGetPciInfo_v3, device_pci);
SAME(nvmlDeviceGetMemoryInfo, device_memory);
SAME(nvmlDeviceGetCudaComputeCapability, device_capability);
SAME(nvmlDeviceGetMemoryAffinity, device_memory_affinity);
SAME(nvmlDeviceGetP2PStatus, p2p_status);
SAME(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation);
SAME(nvmlDeviceGetMaxPcieLinkGeneration, pcie_max_generation);
SAME(nvmlDeviceGetCurrPcieLinkWidth, pcie_width);
SAME(nvmlDeviceGetMaxPcieLinkWidth, pcie_max_width);
SAME(nvmlDeviceGetPcieReplayCounter, pcie_replays);
SAME(nvmlDeviceGetPcieThroughput, pcie_throughput);
SAME(nvmlDeviceGetTemperature, temperature);
SAME(nvmlDeviceGetPowerUsage, power);
SAME(nvmlDeviceGetEnforcedPowerLimit, power_limit);
SAME(nvmlDeviceGetClockInfo, clock);
SAME(nvmlDeviceGetUtilizationRates, utilization);
SAME(nvmlDeviceGetComputeRunningProcesses_v3, compute_processes);
SAME(nvmlDeviceGetGraphicsRunningProcesses_v3, graphics_processes);
SAME(nvmlDeviceGetProcessUtilization, process_use);
SAME(nvmlEventSetCreate, event_set);
SAME(nvmlDeviceRegisterEvents, register_events);
SAME(nvmlEventSetWait_v2, wait_for_event);

#undef SAME

static_assert(kNvmlSuccess == NVML_SUCCESS);
static_assert(kNvmlNotSupported == NVML_ERROR_NOT_SUPPORTED);
static_assert(kNvmlNoPermission == NVML_ERROR_NO_PERMISSION);
static_assert(kNvmlNotFound == NVML_ERROR_NOT_FOUND);
static_assert(kNvmlInsufficientSize == NVML_ERROR_INSUFFICIENT_SIZE);
static_assert(kNvmlDriverNotLoaded == NVML_ERROR_DRIVER_NOT_LOADED);
static_assert(kNvmlTimeout == NVML_ERROR_TIMEOUT);
static_assert(kNvmlXidEvent == nvmlEventTypeXidCriticalError);
static_assert(kNvmlGpuIsLost == NVML_ERROR_GPU_IS_LOST);
static_assert(kNvmlResetRequired == NVML_ERROR_RESET_REQUIRED);
static_assert(kNvmlVersionMismatch == NVML_ERROR_LIB_RM_VERSION_MISMATCH);
static_assert(kNvmlTemperatureGpu == NVML_TEMPERATURE_GPU);
static_assert(kNvmlClockSm == NVML_CLOCK_SM);
static_assert(kNvmlPcieTxBytes == NVML_PCIE_UTIL_TX_BYTES);
static_assert(kNvmlPcieRxBytes == NVML_PCIE_UTIL_RX_BYTES);
static_assert(kNvmlAffinityNode == NVML_AFFINITY_SCOPE_NODE);
static_assert(kNvmlP2pRead == NVML_P2P_CAPS_INDEX_READ);
static_assert(kNvmlP2pWrite == NVML_P2P_CAPS_INDEX_WRITE);
static_assert(kNvmlP2pOk == NVML_P2P_STATUS_OK);
static_assert(kNvmlTextBytes >= NVML_DEVICE_UUID_V2_BUFFER_SIZE);
static_assert(kNvmlTextBytes >= NVML_DEVICE_NAME_V2_BUFFER_SIZE);
static_assert(kNvmlTextBytes >= NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE);

#define SAME_MEMBER(their_struct, theirs, our_struct, ours)                    \
  static_assert(offsetof(their_struct, theirs) == offsetof(our_struct, ours)); \
  static_assert(sizeof(their_struct::theirs) == sizeof(our_struct::ours))

static_assert(sizeof(NvmlMemory) == sizeof(nvmlMemory_t));
SAME_MEMBER(nvmlMemory_t, total, NvmlMemory, total);
SAME_MEMBER(nvmlMemory_t, free, NvmlMemory, free);
static_assert(sizeof(NvmlUtilization) == sizeof(nvmlUtilization_t));
SAME_MEMBER(nvmlUtilization_t, gpu, NvmlUtilization, gpu);
static_assert(sizeof(NvmlPci) == sizeof(nvmlPciInfo_t));
SAME_MEMBER(nvmlPciInfo_t, busId, NvmlPci, bus_id);
static_assert(sizeof(NvmlProcess) == sizeof(nvmlProcessInfo_t));
SAME_MEMBER(nvmlProcessInfo_t, pid, NvmlProcess, pid);
SAME_MEMBER(nvmlProcessInfo_t, usedGpuMemory, NvmlProcess, memory);
static_assert(sizeof(NvmlProcessUse) == sizeof(nvmlProcessUtilizationSample_t));
SAME_MEMBER(nvmlProcessUtilizationSample_t, pid, NvmlProcessUse, pid);
SAME_MEMBER(nvmlProcessUtilizationSample_t, timeStamp, NvmlProcessUse, time);
SAME_MEMBER(nvmlProcessUtilizationSample_t, smUtil, NvmlProcessUse, sm);
static_assert(sizeof(NvmlEvent) == sizeof(nvmlEventData_t));
SAME_MEMBER(nvmlEventData_t, device, NvmlEvent, device);
SAME_MEMBER(nvmlEventData_t, eventType, NvmlEvent, type);
SAME_MEMBER(nvmlEventData_t, eventData, NvmlEvent, data);

#undef SAME_MEMBER

TEST(NvmlHeaderTest, WasCompared) { EXPECT_GE(NVML_API_VERSION, 13); }

}  // namespace
}  // namespace roundhouse::worker
