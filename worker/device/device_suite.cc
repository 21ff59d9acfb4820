#include "worker/device/device_suite.h"

#include <cstdlib>

namespace roundhouse::worker {

void DeviceSuite::SetUp() {
  const auto device = GetParam()(kDeviceAlignBytes);
  if (device.ok()) return;
  if (absl::IsFailedPrecondition(device.status()) &&
      std::getenv("ROUNDHOUSE_REQUIRE_DEVICES") == nullptr) {
    GTEST_SKIP() << device.status().message();
  }
  FAIL() << device.status();
}

std::unique_ptr<Device> DeviceSuite::Open(uint64_t limit_bytes) const {
  return GetParam()(limit_bytes).value();
}

}  // namespace roundhouse::worker
