#include "worker/device/cuda/cuda_device.h"

#include <cstdlib>
#include <memory>
#include <string>

#include "worker/device/device_conformance.h"
#include "worker/device/peers_conformance.h"

namespace roundhouse::worker {
namespace {

absl::StatusOr<std::unique_ptr<Device>> OpenFirst(uint64_t memory_bytes) {
  return NewCudaDevice({.index = 0, .memory_bytes = memory_bytes});
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformance,
                         testing::Values(DeviceFactory(&OpenFirst)));

// A test that needs more of them than there are is skipped.  Members in one
// process would read each other's memory by its address, which of a pool only
// its own device may; workers are processes of their own.
absl::StatusOr<std::unique_ptr<Device>> OpenMember(int rank,
                                                   uint64_t memory_bytes) {
  setenv("NCCL_P2P_DIRECT_DISABLE", "1", 1);
  return NewCudaDevice({.index = rank, .memory_bytes = memory_bytes});
}

INSTANTIATE_TEST_SUITE_P(Cuda, PeersConformance,
                         testing::Values(PeerDeviceFactory(&OpenMember)));

// On every machine: one that has no GPU, and one that has some.
TEST(CudaDeviceTest, ADeviceThatIsNotThereIsRefusedByNumber) {
  const auto device = NewCudaDevice({.index = 1000, .memory_bytes = 64});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
  const std::string text(device.status().message());
  EXPECT_EQ(text.find("no CUDA device"), 0u) << text;
  EXPECT_NE(text.find("CUDA_VISIBLE_DEVICES"), text.npos) << text;
}

TEST(CudaDeviceTest, NoMemoryIsNoDevice) {
  EXPECT_EQ(OpenFirst(0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace roundhouse::worker
