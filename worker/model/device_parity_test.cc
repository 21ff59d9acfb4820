// The suite itself: the host against the host; and against fused kernels.
#include "worker/model/device_parity.h"

#include "worker/device/cpu/cpu_device.h"
#include "worker/model/fused/host_fused_kernels.h"
#include "worker/model/on_stream.h"

namespace roundhouse::worker {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceParity,
                         testing::Values(DeviceFactory(&NewCpuDevice)));

// Whole models with the arithmetic of a GPU's kernels.
absl::StatusOr<std::unique_ptr<Device>> OpenWithFusedKernels(uint64_t bytes) {
  static const HostFusedKernels kernels;
  SetHostFusedKernels(&kernels);
  return NewCpuDevice(bytes);
}

INSTANTIATE_TEST_SUITE_P(CpuFused, DeviceParity,
                         testing::Values(DeviceFactory(&OpenWithFusedKernels)));

}  // namespace
}  // namespace roundhouse::worker
