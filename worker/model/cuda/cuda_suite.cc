#include "worker/model/cuda/cuda_suite.h"

#include <cstdio>

#include "worker/device/cuda/cuda_device.h"
#include "worker/model/library_choices.h"

namespace roundhouse::worker {

DeviceFactory FirstGpu() {
  return [](uint64_t memory_bytes) {
    return NewCudaDevice({.index = 0, .memory_bytes = memory_bytes});
  };
}

}  // namespace roundhouse::worker

int main(int argc, char** argv) {
  const absl::Status fixed = roundhouse::worker::FixLibraryChoices(argv);
  if (!fixed.ok()) {
    std::fprintf(stderr, "%s\n", fixed.ToString().c_str());
    return 1;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
