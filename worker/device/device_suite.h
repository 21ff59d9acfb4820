// What suites of tests that run on any kind of device have in common: they are
// parameterised by how a device is opened, and skipped where there is none.
#ifndef ROUNDHOUSE_WORKER_DEVICE_DEVICE_SUITE_H_
#define ROUNDHOUSE_WORKER_DEVICE_DEVICE_SUITE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

// Makes a device whose limit is the given number of bytes. FAILED_PRECONDITION:
// this machine has none; the suite is then skipped, saying why, or fails where
// ROUNDHOUSE_REQUIRE_DEVICES is set.
using DeviceFactory =
    std::function<absl::StatusOr<std::unique_ptr<Device>>(uint64_t)>;

class DeviceSuite : public testing::TestWithParam<DeviceFactory> {
 protected:
  void SetUp() override;
  std::unique_ptr<Device> Open(uint64_t limit_bytes) const;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_DEVICE_SUITE_H_
