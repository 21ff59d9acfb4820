// The suite itself: the host against the host.
#include "worker/model/device_parity.h"

#include "worker/device/cpu/cpu_device.h"

namespace roundhouse::worker {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceParity,
                         testing::Values(DeviceFactory(&NewCpuDevice)));

}  // namespace
}  // namespace roundhouse::worker
