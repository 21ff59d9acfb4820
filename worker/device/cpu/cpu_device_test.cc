#include "worker/device/cpu/cpu_device.h"

#include "worker/device/device_conformance.h"

namespace roundhouse::worker {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance,
                         testing::Values(DeviceFactory(&NewCpuDevice)));

}  // namespace
}  // namespace roundhouse::worker
