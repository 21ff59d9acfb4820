#include "worker/model/cuda/cuda_suite.h"
#include "worker/model/fused/fused_suite.h"

namespace roundhouse::worker {
namespace {

INSTANTIATE_TEST_SUITE_P(Cuda, FusedSuite, testing::Values(FirstGpu()));

}  // namespace
}  // namespace roundhouse::worker
