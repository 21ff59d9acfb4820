#include "worker/model/cuda/cuda_suite.h"
#include "worker/model/device_parity.h"

namespace roundhouse::worker {
namespace {

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceParity, testing::Values(FirstGpu()));

}  // namespace
}  // namespace roundhouse::worker
