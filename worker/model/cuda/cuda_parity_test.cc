// Skipped where there is no GPU.
#include "worker/device/cuda/cuda_device.h"
#include "worker/model/device_parity.h"

namespace roundhouse::worker {
namespace {

absl::StatusOr<std::unique_ptr<Device>> OpenFirst(uint64_t memory_bytes) {
  return NewCudaDevice({.index = 0, .memory_bytes = memory_bytes});
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceParity,
                         testing::Values(DeviceFactory(&OpenFirst)));

}  // namespace
}  // namespace roundhouse::worker
