// The suite itself, on the host: with LibTorch's operators, and with the
// arithmetic of a GPU's kernels.
#include "tests/parity/device_goldens.h"

#include "worker/device/cpu/cpu_device.h"
#include "worker/model/fused/host_fused_kernels.h"
#include "worker/model/on_stream.h"

namespace roundhouse::parity {
namespace {

using worker::DeviceFactory;

DeviceFactory WithKernels(const worker::FusedKernels* kernels) {
  return [kernels](uint64_t bytes) {
    worker::SetHostFusedKernels(kernels);
    return worker::NewCpuDevice(bytes);
  };
}

const worker::HostFusedKernels kFused;

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceGoldens,
                         testing::Values(WithKernels(nullptr)));
INSTANTIATE_TEST_SUITE_P(CpuFused, DeviceGoldens,
                         testing::Values(WithKernels(&kFused)));

}  // namespace
}  // namespace roundhouse::parity
