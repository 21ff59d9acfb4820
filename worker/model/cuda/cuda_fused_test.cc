// Skipped where there is no GPU.
#include <cstdio>

#include "worker/device/cuda/cuda_device.h"
#include "worker/model/fused/fused_suite.h"
#include "worker/model/library_choices.h"

namespace roundhouse::worker {
namespace {

absl::StatusOr<std::unique_ptr<Device>> OpenFirst(uint64_t memory_bytes) {
  return NewCudaDevice({.index = 0, .memory_bytes = memory_bytes});
}

INSTANTIATE_TEST_SUITE_P(Cuda, FusedSuite,
                         testing::Values(DeviceFactory(&OpenFirst)));

}  // namespace
}  // namespace roundhouse::worker

// With the worker's choices: cuBLAS refuses to be deterministic without.
int main(int argc, char** argv) {
  const absl::Status fixed = roundhouse::worker::FixLibraryChoices(argv);
  if (!fixed.ok()) {
    std::fprintf(stderr, "%s\n", fixed.ToString().c_str());
    return 1;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
