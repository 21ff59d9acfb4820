#include "tests/parity/device_goldens.h"
#include "worker/model/cuda/cuda_suite.h"

namespace roundhouse::parity {
namespace {

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceGoldens,
                         testing::Values(worker::FirstGpu()));

}  // namespace
}  // namespace roundhouse::parity
